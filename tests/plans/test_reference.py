"""The second stage: fits against the process of a prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace, norm
from jax.scipy.stats import t as student

from follmer import (
    NSFS,
    FileError,
    InputError,
    Posterior,
    Target,
    fit,
    load,
    mc_sfs,
    nuts,
    prior_process,
)
from follmer.paths import PriorProcess

KEY = jax.random.key(0)
SMALL = {
    "num_paths": 4,
    "num_iterations": 6,
    "drift": "mlp",
    "drift_options": {"width": 4, "depth": 1},
}
SIZE = {**SMALL, "chunk_size": 3, "progress": False, "audit": False}
DATA = np.array([0.3, 0.9, -0.5, 1.1], np.float32)


def lasso(theta):
    return jnp.sum(laplace.logpdf(theta))


def make(log_prior=lasso, data=DATA, dim=2):
    return Target(
        log_prior=log_prior,
        log_likelihood=lambda theta, batch: norm.logpdf(batch, jnp.sum(theta), 0.5),
        data=data,
        like=jnp.zeros(dim),
    )


class Pull(eqx.Module):
    """A drift of the user's own."""

    rate: jax.Array

    def __init__(self, rate=0.1):
        self.rate = jnp.asarray(rate)

    def __call__(self, t, x):
        return -self.rate * x


def made(log_prior=lasso, key=KEY, **options):
    options = {"precondition": "identity", "num_steps": 3, **SIZE, **options}
    return prior_process(make(log_prior), key=key, **options)


def staged(process, target):
    """The second stage as an algorithm, in the process's own coordinates."""
    flow = process.sampler
    shared = PriorProcess(flow).options
    return NSFS(target, **SMALL, **shared, reference=PriorProcess(flow))


@pytest.fixture(scope="module")
def process():
    return made()


@pytest.fixture(scope="module")
def posterior(process):
    return fit(make(), reference=process, key=KEY, **SIZE)


def test_an_untrained_posterior_is_the_prior_process(process):
    algorithm = staged(process, make())
    keys = jax.random.split(KEY, 4)
    x, log_weights = algorithm.process.simulate(algorithm.init(KEY).average, keys)
    expected = process.sampler.process.simulate(process.sampler.parameters, keys)
    np.testing.assert_allclose(x, expected[0], rtol=1e-5, atol=1e-6)
    log_likelihoods = jax.vmap(make().log_likelihood)(expected[0])
    np.testing.assert_allclose(log_weights, expected[1] + log_likelihoods, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", ["stl", "det", "relative_entropy", "log_variance"])
def test_every_objective_trains_the_new_drift_alone(process, objective):
    posterior = fit(make(), reference=process, key=KEY, objective=objective, **SIZE)
    assert isinstance(posterior, Posterior)
    assert np.isfinite(posterior.history["loss"]).all()
    trained = posterior.sampler.process
    assert trained.reference.flow.parameters is process.sampler.parameters
    assert (trained.num_steps, trained.grid) == (3, "geometric")
    assert "prior's process, which has an ESS of" in posterior.summary(key=KEY)


def test_the_training_does_not_see_the_density_of_the_prior(process):
    def blind(theta):
        return lasso(theta) * jnp.nan

    algorithm = staged(process, make(blind))
    state, step = algorithm.init(KEY), jax.jit(algorithm.step)
    for i in range(2):
        state, info = step(state, jax.random.fold_in(KEY, i))
        assert np.isfinite(info.loss)
        assert not info.skipped


def test_mini_batches_work_with_a_reference(process):
    posterior = fit(make(), reference=process, key=KEY, batch_size=2, **SIZE)
    assert np.isfinite(posterior.history["loss"]).all()


def test_an_audit_is_made_as_always(process):
    posterior = fit(make(), reference=process, key=KEY, **SIZE | {"audit": True})
    log_weights = np.asarray(posterior.log_weights(16_384, key=KEY), float)
    weights = np.asarray(jax.nn.softmax(log_weights), float)
    # Its upper bound is the mean log weight of paths that end in draws of chains; weights give
    # that mean too.
    expected = weights @ log_weights
    error = np.sqrt(weights**2 @ (log_weights - expected) ** 2)
    assert abs(posterior.audit.eubo - expected) < 4 * np.hypot(error, posterior.audit.eubo_se)


def test_a_posterior_with_a_reference_can_be_saved_and_loaded(posterior, tmp_path):
    posterior.save(tmp_path / "posterior")
    loaded = load(tmp_path / "posterior", make())
    for one, two in zip(
        loaded.weighted_sample(4, key=KEY, num_steps=5),
        posterior.weighted_sample(4, key=KEY, num_steps=5),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def test_a_saved_reference_serves_as_the_one_that_was_made(process, posterior, tmp_path):
    process.save(tmp_path / "prior")
    again = fit(make(), reference=load(tmp_path / "prior", make().prior), key=KEY, **SIZE)
    np.testing.assert_array_equal(again.sample(4, key=KEY), posterior.sample(4, key=KEY))


def test_a_reference_with_a_drift_of_your_own_needs_it_again_when_loaded(tmp_path):
    reference = made(drift=Pull(), drift_options={})
    posterior = fit(make(), reference=reference, key=KEY, **SIZE)
    posterior.save(tmp_path / "posterior")
    with pytest.raises(FileError, match="reference_drift of your own"):
        load(tmp_path / "posterior", make())
    loaded = load(tmp_path / "posterior", make(), reference_drift=Pull())
    np.testing.assert_array_equal(loaded.sample(4, key=KEY), posterior.sample(4, key=KEY))
    reference.save(tmp_path / "prior")
    with pytest.raises(InputError, match="not saved with a reference_drift"):
        load(tmp_path / "prior", make().prior, drift=Pull(), reference_drift=Pull())


def test_a_run_is_not_resumed_with_another_reference(process, tmp_path):
    options = {"key": KEY, "checkpoint": tmp_path, **SIZE}
    fit(make(), reference=process, **options)
    fit(make(), reference=process, resume=True, **options)
    with pytest.raises(FileError, match="other options: reference"):
        fit(make(), reference=made(key=jax.random.key(9)), resume=True, **options)


def test_what_a_reference_shares_may_be_repeated_but_not_changed(process):
    fit(make(), reference=process, key=KEY, num_steps=3, gamma=1.0, **SIZE)
    for option in ({"num_steps": 4}, {"gamma": 0.5}, {"grid": "uniform"}, {"gamma": "search"}):
        name = next(iter(option))
        with pytest.raises(InputError, match=f"{name}=.* differs from the reference's"):
            fit(make(), reference=process, key=KEY, **option, **SIZE)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (make(), {"precondition": "laplace"}, "together with precondition='laplace'"),
        (NSFS(make()), {}, "together with an NSFS"),
        (Target(lasso, like=jnp.zeros(2)), {}, "does not tell its prior from its data"),
        (make(dim=3), {}, r"the reference has the parameters \[\['theta', \[2\]"),
        (make(lambda theta: 2 * lasso(theta)), {}, "another prior than the target's"),
        (make(), {"objective": "adjoint_matching"}, "that learn from a memory"),
    ],
)
def test_a_reference_that_cannot_serve_is_refused(process, target, options, message):
    with pytest.raises(InputError, match=message):
        fit(target, reference=process, key=KEY, **options, **SIZE)


def test_a_constant_in_the_log_prior_makes_no_other_prior(process):
    fit(make(lambda theta: 3.0 + lasso(theta)), reference=process, key=KEY, **SIZE)


def test_only_the_process_of_a_prior_is_a_reference(posterior):
    prior = Target(lasso, like=jnp.zeros(2))
    with pytest.raises(InputError, match="reference is str, not the trained process"):
        fit(make(), reference="prior", key=KEY)
    with pytest.raises(InputError, match="reference is HeatSemigroupSampler"):
        fit(make(), reference=mc_sfs(prior, num_steps=2, num_samples=2), key=KEY)
    with pytest.raises(InputError, match="itself fitted to data"):
        fit(make(), reference=posterior, key=KEY)
    with pytest.raises(InputError, match="reference is Posterior, not a process"):
        NSFS(make(), reference=posterior)


PRIORS = {
    "laplace": lasso,
    "student": lambda theta: jnp.sum(student.logpdf(theta, 3.0)),
    "mixture": lambda theta: jnp.sum(
        jnp.logaddexp(
            jnp.log(0.4) + norm.logpdf(theta, -2.0, 0.5),
            jnp.log(0.6) + norm.logpdf(theta, 1.5, 0.8),
        )
    ),
}
# Few data, which leave the prior's shape visible, and many.
DATA_SETS = {"few": (5, [1.0, -0.5], 1.5), "many": (60, [-1.5, 1.0], 0.5)}


def regression(log_prior, num_data, coefficients, noise):
    random = np.random.default_rng(num_data)
    x = random.normal(size=(num_data, len(coefficients)))
    y = x @ coefficients + noise * random.normal(size=num_data)
    return Target(
        log_prior=log_prior,
        log_likelihood=lambda w, batch: norm.logpdf(batch["y"], batch["x"] @ w, noise),
        data={"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)},
        like=jnp.zeros(len(coefficients)),
    )


def quadrature(target):
    """ln Z, means and standard deviations of a density on the plane."""
    axis = np.linspace(-9.0, 9.0, 1201)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    log_density = jax.jit(lambda x: jax.lax.map(target.log_density, x, batch_size=1201))
    values = np.asarray(log_density(jnp.asarray(points, jnp.float32)), float)
    weights = np.exp(values - values.max())
    log_z = np.log(weights.sum()) + values.max() + 2 * np.log(axis[1] - axis[0])
    weights /= weights.sum()
    mean = weights @ points
    return log_z, mean, np.sqrt(weights @ (points - mean) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PRIORS))
def test_one_process_of_a_prior_serves_several_data_sets(name):
    process = prior_process(
        Target(PRIORS[name], like=jnp.zeros(2)), key=KEY, progress=False, audit=False
    )
    assert process.diagnostics(key=KEY).ess_fraction > 0.9
    for data_set in DATA_SETS.values():
        target = regression(PRIORS[name], *data_set)
        posterior = fit(
            target, reference=process, key=KEY, num_iterations=500, progress=False, audit=False
        )
        log_z, mean, sd = quadrature(target)
        draws = posterior.weighted_sample(8192, key=jax.random.key(5))
        found = posterior.diagnostics(key=jax.random.key(5), num_samples=8192)
        assert found.ess_fraction > 0.8
        assert abs(found.log_evidence - log_z) < 4.5 * found.log_evidence_se + 1e-3
        weights = np.asarray(jax.nn.softmax(draws.log_weights), float)
        z = (np.asarray(draws.position, float) - mean) / sd
        for moment, expected in ((z, 0.0), (z**2, 1.0)):
            error = weights @ moment - expected
            se = np.sqrt(weights**2 @ (moment - expected) ** 2)
            assert (np.abs(error) < 4.5 * se).all()
            assert (se < 0.03).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", "student"])
def test_two_stages_agree_with_nuts_in_eight_dimensions(name):
    dim = 8
    process = prior_process(
        Target(PRIORS[name], like=jnp.zeros(dim)), key=KEY, progress=False, audit=False
    )
    target = regression(PRIORS[name], 20, [2.0, -1.0, 0.5] + [0.0] * (dim - 3), 1.0)
    posterior = fit(target, reference=process, key=KEY, progress=False, audit=False)
    draws = posterior.weighted_sample(8192, key=jax.random.key(5))
    weights = np.asarray(jax.nn.softmax(draws.log_weights), float)
    chains = nuts(target, key=KEY, num_chains=4, num_samples=2000, progress=False)
    truth = chains.sampler.draws.astype(float)
    chain_means = truth.mean(axis=1)
    mean, sd = chain_means.mean(axis=0), truth.reshape(-1, dim).std(axis=0)
    # Chains are independent: their means tell their own Monte-Carlo error.
    truth_se = chain_means.std(axis=0, ddof=1) / 2.0
    x = np.asarray(draws.position, float)
    se = np.sqrt(weights**2 @ (x - mean) ** 2)
    # Three degrees of freedom in the chains' error: a wider quantile than the normal's.
    assert (np.abs(weights @ x - mean) < 4.5 * se + 6.0 * truth_se).all()
    found_sd = np.sqrt(weights @ (x - weights @ x) ** 2)
    assert (np.abs(found_sd / sd - 1.0) < 0.1).all()
    assert (se < 0.1 * sd).all()
