import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer import NSFS, FileError, InputError, Posterior, Target
from follmer.drifts import GaussianDrift, GaussianMixture
from follmer.errors import FollmerError
from follmer.judging import Audit, Judgement, Verdict, diagnose, judge, pareto_smooth
from follmer.posterior.samplers import Flow, MixtureFlow
from follmer.targets import data_digest
from follmer.targets.affine import from_covariance
from follmer.tools import progress, storage
from follmer.tools.keys import named_key

MEAN, SD, LOG_EVIDENCE = np.array([0.8, -0.5]), np.array([0.7, 0.9]), 0.3
NUM_DRAWS = 4096


def gaussian():
    def log_density(theta):
        return jnp.sum(norm.logpdf(theta, MEAN, SD)) + LOG_EVIDENCE

    return Target(log_density, like=jnp.zeros(2))


def mixed(**changes):
    """One leaf of each kind; ln Z = 0."""

    def log_density(theta):
        mu = jnp.sum(norm.logpdf(theta["mu"]))
        return mu - theta["sigma"] + jnp.log(2.0) + 0.0 * jnp.sum(theta["weights"])

    arguments = {
        "like": {"mu": jnp.zeros((2, 1)), "sigma": 1.0, "weights": jnp.zeros(3)},
        "constraints": {"sigma": constraints.positive, "weights": constraints.simplex},
    }
    return Target(log_density, **arguments | changes)


def untrained(target, **options):
    """A flow with the drift it starts from, without the cost of training."""
    options = {"num_steps": 4, "drift_options": {"width": 8, "depth": 1}} | options
    process = NSFS(target, **options).process
    return Posterior(target, Flow(process, process.parameters(jax.random.key(0))))


def standard_error(values, log_weights):
    """Of the self-normalised mean, by the delta method."""
    weights = np.exp(log_weights - np.max(log_weights))
    weights = weights / weights.sum()
    deviations = values - weights @ values
    return np.sqrt(weights**2 @ deviations**2)


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.fixture(scope="module")
def perturbed():
    """A drift away from its start, on the constrained target."""
    posterior = untrained(mixed())
    process = posterior.sampler.process
    parameters = jax.tree.map(lambda leaf: leaf + 0.1, posterior.sampler.parameters)
    history = {"loss": np.linspace(2.0, 1.0, 20), "evaluation_elbo": np.array([-1.5])}
    return Posterior(posterior.target, Flow(process, parameters), history)


@pytest.fixture(scope="module")
def reference():
    """The untrained process on the Gaussian: its draws are those of N(0, I)."""
    return untrained(gaussian())


@pytest.fixture(scope="module")
def mistrained():
    """A drift that is exact for another Gaussian."""
    drift = GaussianDrift(jnp.array([0.2, 0.1]), jnp.diag(jnp.array([1.1, 1.2])))
    return untrained(gaussian(), drift=drift, drift_options={})


def test_sample_has_the_tree_of_like_with_a_leading_axis(perturbed, key):
    draws = perturbed.sample(200, key=key)
    shapes = {name: leaf.shape for name, leaf in draws.items()}
    assert shapes == {"mu": (200, 2, 1), "sigma": (200,), "weights": (200, 3)}


def test_draws_satisfy_the_constraints(perturbed, key):
    draws = perturbed.sample(200, key=key)
    assert jnp.all(draws["sigma"] > 0)
    assert jnp.all(constraints.simplex(draws["weights"]))
    assert jnp.any(draws["mu"] < 0)


def test_a_bare_like_gives_a_bare_sample(reference, key):
    assert reference.sample(200, key=key).shape == (200, 2)


def test_draws_and_weights_of_one_key_belong_together(perturbed, key):
    draws = perturbed.weighted_sample(200, key=key)
    assert_same(perturbed.sample(200, key=key), draws.position)
    assert_same(perturbed.log_weights(200, key=key), draws.log_weights)


def test_weights_without_a_drift_are_density_ratios(reference, key):
    draws = reference.sample(200, key=key)
    log_weights = reference.log_weights(200, key=key)
    log_ratio = norm.logpdf(draws, MEAN, SD).sum(1) + LOG_EVIDENCE - norm.logpdf(draws).sum(1)
    np.testing.assert_allclose(log_weights, log_ratio, atol=1e-4)


def test_other_keys_give_other_draws(reference, key):
    first, second = jax.random.split(key)
    assert jnp.all(reference.sample(200, key=first) != reference.sample(200, key=second))


def test_chunks_differ_from_each_other(reference, key):
    draws = reference.sample(512, key=key)
    assert jnp.all(draws[:256] != draws[256:])


def test_the_first_draws_do_not_depend_on_how_many_follow(perturbed, key):
    few, many = (perturbed.weighted_sample(count, key=key) for count in (300, 1000))
    assert_same(*(jax.tree.map(lambda leaf: leaf[:10], draws) for draws in (few, many)))


def test_small_samples_are_the_start_of_larger_ones(reference, key):
    few, many = reference.sample(5, key=key), reference.sample(300, key=key)
    np.testing.assert_allclose(few, many[:5], atol=1e-5)


def test_num_steps_may_differ_from_training(mistrained, key):
    weights = np.exp(mistrained.log_weights(NUM_DRAWS, key=key, num_steps=1))
    # Exact for every number of steps: five standard errors of the mean weight.
    error = 5 * weights.std() / np.sqrt(weights.size)
    np.testing.assert_allclose(weights.mean(), np.exp(LOG_EVIDENCE), atol=error)
    few, many = (mistrained.sample(200, key=key, num_steps=steps) for steps in (1, None))
    assert jnp.all(few != many)


def test_expectation_is_right_where_plain_draws_are_not(reference, key):
    draws = reference.weighted_sample(NUM_DRAWS, key=key)
    found = reference.expectation(lambda theta: theta, key=key, num_samples=NUM_DRAWS)
    for i in range(2):
        values = np.asarray(draws.position[:, i])
        # Five standard errors, weighted and plain.
        error = 5 * standard_error(values, np.asarray(draws.log_weights))
        np.testing.assert_allclose(found[i], MEAN[i], atol=error)
        assert abs(values.mean() - MEAN[i]) > 5 * values.std() / np.sqrt(NUM_DRAWS)


def test_expectation_takes_any_tree_of_results(perturbed, key):
    found = perturbed.expectation(
        lambda theta: {"one": jnp.ones(()), "pair": (theta["weights"], theta["sigma"] > 0)},
        key=key,
        num_samples=256,
    )
    np.testing.assert_allclose(found["one"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(jnp.sum(found["pair"][0]), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found["pair"][1], 1.0, rtol=1e-5)


def test_resampling_removes_the_bias_of_a_mistrained_flow(mistrained, key):
    plain = np.asarray(mistrained.sample(NUM_DRAWS, key=key))
    draws = np.asarray(mistrained.resample(1024, key=key, num_proposals=NUM_DRAWS))
    log_weights = np.asarray(mistrained.log_weights(NUM_DRAWS, key=key))
    assert draws.shape == (1024, 2)
    for i in range(2):
        weighted = standard_error(plain[:, i], log_weights)
        # Five standard errors of the weighted mean and of choosing 1024 among the proposals.
        error = 5 * np.hypot(weighted, SD[i] / np.sqrt(1024))
        np.testing.assert_allclose(draws[:, i].mean(), MEAN[i], atol=error)
        assert abs(plain[:, i].mean() - MEAN[i]) > 2 * error


def test_resampled_draws_are_proposals_chosen_by_weight(reference, key):
    draws = reference.resample(64, key=key)
    proposals = reference.weighted_sample(256, key=named_key(key, "proposals"))
    index = {tuple(row): i for i, row in enumerate(np.asarray(proposals.position))}
    chosen = [index[tuple(row)] for row in np.asarray(draws)]
    assert proposals.log_weights[np.array(chosen)].mean() > proposals.log_weights.mean()


def test_resampling_keeps_leaves_together(perturbed, key):
    def rows(draws):
        return {(float(s), *w) for s, w in zip(*map(np.asarray, draws), strict=True)}

    draws = perturbed.resample(64, key=key)
    proposals = perturbed.sample(256, key=named_key(key, "proposals"))
    pairs = [(tree["sigma"], tree["weights"]) for tree in (draws, proposals)]
    assert rows(pairs[0]) <= rows(pairs[1])


def test_a_few_draws_can_be_resampled(reference, key):
    assert reference.resample(2, key=key).shape == (2, 2)


@pytest.mark.parametrize("count", [1, 2, 10, 24])
def test_few_weights_can_be_diagnosed_and_smoothed(count):
    log_weights = np.random.default_rng(0).normal(size=count)
    np.testing.assert_allclose(np.exp(pareto_smooth(log_weights)[0]).sum(), 1.0)
    found = diagnose(jnp.asarray(log_weights))
    np.testing.assert_allclose(found.elbo, log_weights.mean(), rtol=1e-5)


def test_diagnostics_of_a_known_evidence(reference, key):
    found = reference.diagnostics(key=key, num_samples=NUM_DRAWS)
    assert 0 < found.log_evidence_se < 0.1
    # Five standard errors, as the diagnostics themselves report them.
    assert abs(found.log_evidence - LOG_EVIDENCE) < 5 * found.log_evidence_se
    # The bound's gap is KL(N(0, I) ‖ target).
    gap = np.sum(np.log(SD) + (1 + MEAN**2) / (2 * SD**2) - 0.5)
    log_weights = reference.log_weights(NUM_DRAWS, key=key)
    error = 5 * np.std(log_weights) / np.sqrt(NUM_DRAWS)
    np.testing.assert_allclose(found.elbo, LOG_EVIDENCE - gap, atol=error)


def test_the_standard_error_is_that_of_repetition():
    log_weights = np.random.default_rng(0).normal(0.0, 0.5, (400, 500))
    found = [diagnose(jnp.asarray(row)) for row in log_weights]
    spread = np.std([one.log_evidence for one in found])
    # The relative standard error of a standard deviation of 400 values is 1/√800.
    reported = np.mean([one.log_evidence_se for one in found])
    np.testing.assert_allclose(reported, spread, rtol=5 / np.sqrt(800))


def test_constant_weights_are_perfect():
    found = diagnose(jnp.full(100, 1.7))
    np.testing.assert_allclose([found.elbo, found.log_evidence], 1.7, atol=1e-5)
    np.testing.assert_allclose(found.log_evidence_se, 0.0, atol=1e-4)
    np.testing.assert_allclose(found.ess_fraction, 1.0, rtol=1e-5)
    assert found.khat < 0.5
    assert judge(found, Audit(1.7, 0.0, 0.0, 0.1)).name == "trustworthy"


def test_one_dominating_weight_is_one_effective_draw():
    log_weights = np.random.default_rng(0).normal(size=100)
    log_weights[3] = 50.0
    found = diagnose(jnp.asarray(log_weights))
    np.testing.assert_allclose(found.ess_fraction, 1 / 100, rtol=1e-5)


@pytest.mark.parametrize(
    ("scale", "low", "high"),
    [(1.0, 0.7, np.inf), (0.2, -np.inf, 0.5), (-3.0, -np.inf, 0.5)],
    ids=["heavy tail", "light tail", "bounded above"],
)
def test_khat_sees_the_upper_tail_of_the_weights(scale, low, high):
    # exp(s·Exponential) is Pareto with tail index s; turned around it is bounded.
    log_weights = scale * np.random.default_rng(0).exponential(size=4000)
    assert low < diagnose(jnp.asarray(log_weights)).khat < high


def test_smoothed_weights_are_normalised_and_keep_the_order():
    log_weights = np.random.default_rng(0).normal(0.0, 2.0, 1000)
    smoothed, _ = pareto_smooth(log_weights)
    np.testing.assert_allclose(np.exp(smoothed).sum(), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(np.argsort(smoothed), np.argsort(log_weights))


def test_equal_weights_beside_zero_weights_can_be_smoothed():
    smoothed, _ = pareto_smooth(np.append(np.zeros(99), -np.inf))
    np.testing.assert_allclose(np.exp(smoothed), np.append(np.full(99, 1 / 99), 0.0), atol=1e-6)


def test_weights_that_are_not_finite_are_judged_not_raised():
    for bad in (np.nan, np.inf, -np.inf):
        found = diagnose(jnp.full(100, bad))
        assert judge(found).name == "do not use"


def test_the_summary_ends_in_a_verdict(perturbed, key):
    lines = perturbed.summary(key=key, num_samples=256).splitlines()
    judged = judge(perturbed.diagnostics(key=key, num_samples=256))
    assert lines[-1].startswith(f"Verdict: {judged.name}. ")


def test_the_summary_shows_weighted_moments_of_every_element(perturbed, key):
    text = perturbed.summary(key=key, num_samples=256)
    for name in ("mu[0,0]", "mu[1,0]", "sigma", "weights[0]", "weights[2]", "ELBO", "ln Z", "ESS"):
        assert f"\n{name} " in text
    mean = perturbed.expectation(lambda theta: theta["sigma"], key=key, num_samples=256)
    row = next(line for line in text.splitlines() if line.startswith("sigma"))
    np.testing.assert_allclose(float(row.split()[1]), mean, rtol=1e-3)


def test_what_a_posterior_is_can_be_read_off_it(reference):
    assert repr(reference) == "Posterior(Target of 2 dimensions, nsfs)"
    judged = reference.with_judgement(Judgement(Verdict.USE_WEIGHTS, "because"))
    assert repr(judged) == "Posterior(Target of 2 dimensions, nsfs, use the weights)"
    assert judged.verdict is Verdict.USE_WEIGHTS


def test_the_summary_passes_notes_on(reference, key):
    noted = Posterior(reference.target, reference.sampler, notes=("training was cut short",))
    assert "note: training was cut short" in noted.summary(key=key, num_samples=256)


def test_the_summary_of_many_parameters_is_cut(key):
    wide = untrained(Target(lambda theta: jnp.sum(norm.logpdf(theta)), jnp.zeros(30)))
    text = wide.summary(key=key, num_samples=256)
    assert "theta[19]" in text
    assert "theta[20]" not in text
    assert "… and 10 more" in text


def test_the_datatree_holds_draws_weights_and_diagnostics(perturbed, key):
    tree = perturbed.to_datatree(key=key, num_samples=256, resampled=False)
    draws = perturbed.weighted_sample(256, key=key)
    assert set(tree.children) == {"posterior", "sample_stats"}
    assert set(tree["posterior"].data_vars) == {"mu", "sigma", "weights"}
    assert tree["posterior"]["weights"].dims[:2] == ("chain", "draw")
    for name, values in draws.position.items():
        np.testing.assert_array_equal(tree["posterior"][name].values[0], values)
    np.testing.assert_array_equal(tree["sample_stats"]["log_weight"].values[0], draws.log_weights)
    assert tree["posterior"].attrs["inference_library"] == "follmer"
    stats = tree["sample_stats"].attrs
    for name, value in diagnose(draws.log_weights)._asdict().items():
        np.testing.assert_allclose(stats[name], value)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sample", {"num_samples": 0}, "num_samples must be a whole number"),
        ("sample", {"num_samples": 2.5}, "num_samples must be a whole number"),
        ("log_weights", {"num_samples": 5, "num_steps": 0}, "num_steps must be a whole number"),
        ("weighted_sample", {"num_samples": 5, "key": 3}, "key is not a JAX random key"),
        ("diagnostics", {"num_sample": 5}, r"(?s)'num_sample' is not an option.*'num_samples'\?"),
        ("resample", {"num_samples": 0}, "num_samples must be a whole number"),
        ("resample", {"num_samples": 5, "num_proposals": 0}, "num_proposals must be a whole"),
        ("expectation", {}, "missing a required argument: 'function'"),
        ("expectation", {"function": "mean"}, "function"),
        ("summary", {"num_samples": -1}, "num_samples must be a whole number"),
        ("to_datatree", {"draws": 3}, "'draws' is not an option"),
    ],
)
def test_bad_options(reference, key, method, options, message):
    with pytest.raises(InputError, match=message):
        getattr(reference, method)(**{"key": key} | options)


def test_a_key_is_needed(reference):
    with pytest.raises(InputError, match=r"missing a required.*'key'"):
        reference.sample(3)


def test_a_saved_flow_draws_bit_for_bit_the_same(perturbed, key, tmp_path):
    perturbed.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", perturbed.target)
    assert_same(loaded.weighted_sample(200, key=key), perturbed.weighted_sample(200, key=key))
    assert_same(loaded.history, perturbed.history)


def test_notes_are_saved(reference, tmp_path):
    noted = Posterior(reference.target, reference.sampler, notes=("cut short",))
    noted.save(str(tmp_path / "run"))
    assert follmer.load(str(tmp_path / "run"), reference.target).notes == ("cut short",)


def test_gamma_steps_and_grid_are_saved(key, tmp_path):
    posterior = untrained(gaussian(), gamma=2.0, num_steps=3, grid="uniform")
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target)
    assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))


def test_a_drift_of_ones_own_takes_its_parameters_from_the_file(mistrained, key, tmp_path):
    mistrained.save(tmp_path / "run")
    drift = GaussianDrift(jnp.zeros(2), 3 * jnp.eye(2))
    loaded = follmer.load(tmp_path / "run", mistrained.target, drift=drift)
    assert_same(loaded.weighted_sample(200, key=key), mistrained.weighted_sample(200, key=key))


def test_a_drift_of_ones_own_must_be_passed_again(mistrained, tmp_path):
    mistrained.save(tmp_path / "run")
    with pytest.raises(FileError, match=r"(?s)a drift of your own.*load\(path, target, drift=…\)"):
        follmer.load(tmp_path / "run", mistrained.target)


def test_a_drift_of_other_shapes_does_not_fit(mistrained, tmp_path):
    mistrained.save(tmp_path / "run")
    drift = follmer.drifts.MLP(2, width=4, depth=1, key=jax.random.key(0))
    with pytest.raises(FileError, match=r"(?s)stored array parameter0 is .*drift"):
        follmer.load(tmp_path / "run", mistrained.target, drift=drift)


def test_a_grid_of_ones_own_must_be_passed_again(key, tmp_path):
    def squares(num_steps):
        return np.linspace(0, 1, num_steps + 1) ** 2

    posterior = untrained(gaussian(), grid=squares)
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError, match=r"(?s)a grid of your own.*grid=…"):
        follmer.load(tmp_path / "run", posterior.target)
    loaded = follmer.load(tmp_path / "run", posterior.target, grid=squares)
    assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))


class Pull(eqx.Module):
    """A drift with a plain number beside its parameters."""

    centre: jax.Array
    rate: float

    def __call__(self, t, x):
        return self.rate * (self.centre - x)


def test_a_drift_may_hold_plain_numbers(key, tmp_path):
    drift = Pull(jnp.ones(2), 0.3)
    posterior = untrained(gaussian(), drift=drift, drift_options={})
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target, drift=Pull(jnp.zeros(2), 0.3))
    assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))


def test_a_mixture_is_saved_bit_for_bit(key, tmp_path):
    affine = from_covariance(MEAN, np.diag(SD**2), jnp.float32)
    factors = np.stack([np.eye(2), np.array([[1.2, 0.0], [0.4, 0.9]])])
    mixture = GaussianMixture(np.array([0.3, 0.7]), np.zeros((2, 2)), factors, jnp.float32)
    posterior = Posterior(gaussian(), MixtureFlow(gaussian().whitened(affine), mixture))
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", gaussian())
    assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))
    found = loaded.diagnostics(key=key, num_samples=NUM_DRAWS)
    assert abs(found.log_evidence - LOG_EVIDENCE) < 5 * found.log_evidence_se


def test_mc_sfs_is_saved_bit_for_bit(key, tmp_path):
    posterior = follmer.mc_sfs(gaussian(), num_samples=8, num_steps=3, variant="gradient")
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target)
    assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))


def test_a_drift_for_mc_sfs_is_refused(tmp_path):
    posterior = follmer.mc_sfs(gaussian(), num_samples=8, num_steps=3)
    posterior.save(tmp_path / "run")
    with pytest.raises(FollmerError, match="drift"):
        follmer.load(tmp_path / "run", posterior.target, drift=lambda t, x: x)


OTHER_TARGETS = {
    "shape": {"like": {"mu": jnp.zeros((3, 1)), "sigma": 1.0, "weights": jnp.zeros(3)}},
    "name": {
        "like": {"mu": jnp.zeros((2, 1)), "sigma": 1.0, "weights": jnp.zeros(3), "nu": 1.0},
    },
    "constraint": {
        "constraints": {"sigma": constraints.unit_interval, "weights": constraints.simplex}
    },
    "no constraint": {"constraints": {"weights": constraints.simplex}},
}


@pytest.mark.parametrize("change", OTHER_TARGETS)
def test_another_target_is_refused(perturbed, tmp_path, change):
    perturbed.save(tmp_path / "run")
    with pytest.raises(FileError, match="saved for another target"):
        follmer.load(tmp_path / "run", mixed(**OTHER_TARGETS[change]))


def with_data(data):
    return Target(
        log_prior=lambda theta: norm.logpdf(theta),
        log_likelihood=lambda theta, batch: norm.logpdf(batch, theta),
        data=jnp.asarray(data),
        like=jnp.zeros(()),
    )


def test_other_data_of_the_same_shape_are_refused(key, tmp_path):
    data = np.array([0.1, 0.2], np.float32)
    posterior = untrained(with_data(data))
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError, match=r"(?s)saved for other data.*target.with_data\(…\)"):
        follmer.load(tmp_path / "run", with_data([0.1, 0.3]))
    loaded = follmer.load(tmp_path / "run", with_data([0.1, 0.3]).with_data(data))
    assert_same(loaded.weighted_sample(20, key=key), posterior.weighted_sample(20, key=key))


def test_what_is_no_target_is_refused(reference, tmp_path):
    reference.save(tmp_path / "run")
    with pytest.raises(InputError, match=r"target is function, not a follmer.Target"):
        follmer.load(tmp_path / "run", jnp.sum)


def test_double_precision_is_saved_bit_for_bit(x64, key, tmp_path):
    posterior = untrained(gaussian())
    posterior.save(tmp_path / "run")
    draws = posterior.weighted_sample(200, key=key)
    assert draws.position.dtype == draws.log_weights.dtype == jnp.float64
    mean = posterior.expectation(lambda theta: theta, key=key, num_samples=200)
    assert mean.dtype == jnp.float64
    loaded = follmer.load(tmp_path / "run", posterior.target)
    assert_same(loaded.weighted_sample(200, key=key), draws)


def test_another_precision_is_refused(reference, x64, tmp_path):
    reference.save(tmp_path / "run")
    with pytest.raises(FileError, match=r"(?s)float32.*not float64.*precision"):
        follmer.load(tmp_path / "run", gaussian())


def test_a_posterior_of_a_whitened_target_survives_saving(key, tmp_path):
    """The coordinates that the user has chosen are the user's to give again."""
    target = gaussian().whitened(from_covariance(MEAN, np.diag(SD**2), jnp.float32))
    posterior = untrained(target)
    posterior.save(tmp_path / "run")
    for given in (target, gaussian()):
        loaded = follmer.load(tmp_path / "run", given)
        assert_same(loaded.weighted_sample(200, key=key), posterior.weighted_sample(200, key=key))
    other = gaussian().whitened(from_covariance(MEAN, np.eye(2), jnp.float32))
    with pytest.raises(FileError, match="saved in other coordinates"):
        follmer.load(tmp_path / "run", other)


def test_numpy_options_can_be_saved(key, tmp_path):
    posterior = untrained(gaussian(), drift_options={"width": np.int64(8)}, gamma=np.float32(2))
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target)
    assert_same(loaded.sample(200, key=key), posterior.sample(200, key=key))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"there is no file .*run"):
        follmer.load(tmp_path / "run", gaussian())


def test_a_checkpoint_is_no_posterior(tmp_path):
    storage.write(tmp_path / "run", "checkpoint", {}, {})
    with pytest.raises(FileError, match="holds a follmer checkpoint, not a posterior"):
        follmer.load(tmp_path / "run", gaussian())


def test_an_unknown_sampler_is_named(reference, tmp_path):
    header = {
        "sampler": "oracle",
        "space": reference.target.describe(),
        "data": data_digest(reference.target.data),
    }
    storage.write(tmp_path / "run", "posterior", header, {})
    with pytest.raises(FileError, match="sampler 'oracle' unknown"):
        follmer.load(tmp_path / "run", reference.target)


def test_a_whitened_posterior_survives_saving(tmp_path, key):
    affine = from_covariance(MEAN, np.diag(SD**2), jnp.float32)
    posterior = follmer.fit(
        gaussian(),
        key=key,
        precondition=affine,
        num_iterations=2,
        num_steps=2,
        drift_options={"width": 4, "depth": 1},
    )
    assert posterior.audit is not None
    posterior.save(tmp_path / "p.follmer")
    loaded = follmer.load(tmp_path / "p.follmer", gaussian())
    assert_same(loaded.sample(16, key=key), posterior.sample(16, key=key))
    assert loaded.audit == posterior.audit
    assert loaded.notes == posterior.notes
    # The target is this Gaussian, so whitening leaves nothing to learn.
    found = loaded.diagnostics(key=key)
    assert found.ess_fraction > 0.99
    assert abs(found.eubo - LOG_EVIDENCE) < 0.05


def test_a_posterior_without_progress_is_silent(key, capfd, monkeypatch):
    # Bars come at once, however little there is to do.
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    spoken = untrained(gaussian())
    silent = Posterior(spoken.target, spoken.sampler, progress=False)
    for posterior in (silent, silent.with_notes("a note")):
        posterior.sample(300, key=key)
        posterior.resample(5, key=key)
        posterior.summary(key=key, num_samples=256)
        posterior.to_datatree(key=key, num_samples=256)
    assert capfd.readouterr() == ("", "")
    spoken.sample(300, key=key)
    assert "sampling" in capfd.readouterr().err


def test_a_fit_without_progress_is_silent_and_so_is_its_posterior(key, capfd, monkeypatch):
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    posterior = follmer.fit(gaussian(), key=key, progress=False)
    assert posterior.progress is False
    posterior.sample(300, key=key)
    assert capfd.readouterr() == ("", "")
    assert repr(posterior) == "Posterior(Target of 2 dimensions, mixture, trustworthy)"
