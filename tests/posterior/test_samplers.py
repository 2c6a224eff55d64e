"""Stored draws behind the Posterior face: no weights, every draw as good as another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

import follmer
from follmer import FileError, InputError, Posterior, Target
from follmer.drifts import GaussianMixture
from follmer.judging import diagnose_chains, judge
from follmer.judging.audit import audited
from follmer.mcmc.resampling import evenly
from follmer.posterior.samplers import MixtureFlow, StoredDraws, draws_at_once

NUM_CHAINS, LENGTH = 3, 40


def target():
    return Target(
        lambda theta: -theta["b"] - jnp.sum(theta["a"] ** 2),
        {"a": jnp.zeros(2), "b": 1.0},
        {"b": constraints.positive},
    )


def stored(num_chains=NUM_CHAINS, length=LENGTH, exact=True, spread=0.0, divergences=0):
    draws = np.random.default_rng(0).normal(size=(num_chains, length, 3)).astype(np.float32)
    draws += spread * np.arange(num_chains, dtype=np.float32)[:, None, None]
    return StoredDraws(draws, "nuts", exact, divergences)


@pytest.fixture(scope="module")
def posterior():
    history = {"loss": np.arange(3.0)}
    return Posterior(target(), stored(), history, ("a note",), gradient_evaluations=7)


def rows(posterior, count, key):
    """Which stored draws a sample consists of."""
    pooled = list(posterior.sampler.draws[..., 0].ravel())
    return [
        pooled.index(value) for value in np.asarray(posterior.flat_sample(count, key=key)[0])[:, 0]
    ]


@pytest.mark.parametrize("count", [1, 7, 120])
def test_no_draw_is_used_twice_before_all_are_used_once(posterior, key, count):
    assert len(set(rows(posterior, count, key))) == count


def test_more_draws_than_are_stored_repeat_all_alike(posterior, key):
    counts = np.bincount(rows(posterior, 300, key), minlength=120)
    assert set(counts) == {2, 3}


def test_a_sample_is_shuffled_and_its_key_decides(posterior, key):
    assert rows(posterior, 120, key) != sorted(rows(posterior, 120, key))
    assert rows(posterior, 5, key) == rows(posterior, 5, key)
    assert rows(posterior, 5, key) != rows(posterior, 5, jax.random.key(1))


def test_rows_are_evenly_spaced_and_every_one_is_as_likely():
    rng = np.random.default_rng(0)
    picks = [evenly(rng, 10, 4) for _ in range(400)]
    assert all(set(np.diff(pick)) <= {2, 3} for pick in picks)
    counts = np.bincount(np.concatenate(picks), minlength=10)
    np.testing.assert_allclose(counts, 160, atol=4 * np.sqrt(160 * 0.6))


def test_rows_of_a_very_long_chain_are_whole_numbers_without_rounding():
    total, rng = 2**26 + 3, np.random.default_rng(0)
    picked = evenly(rng, total, 5)
    assert len(set(picked)) == 5
    assert 0 <= picked.min() <= picked.max() < total
    np.testing.assert_array_equal(evenly(rng, 1000, 1000), np.arange(1000))


def test_draws_are_reported_in_the_targets_own_space(posterior, key):
    draws = posterior.sample(120, key=key)
    assert draws["a"].shape == (120, 2)
    expected = np.exp(posterior.sampler.draws[..., 2]).ravel()
    np.testing.assert_allclose(np.sort(draws["b"]), np.sort(expected), rtol=1e-5)


def test_chains_have_no_weights_and_say_so(posterior, key):
    with pytest.raises(InputError, match=r"(?s)carry no importance weights.*follmer.fit"):
        posterior.log_weights(10, key=key)


def test_weighted_answers_count_all_draws_equally(posterior, key):
    draws = posterior.weighted_sample(120, key=key)
    assert np.all(draws.log_weights == draws.log_weights[0])
    mean = posterior.expectation(lambda theta: theta["a"], key=key, num_samples=120)
    np.testing.assert_allclose(mean, np.mean(posterior.sampler.draws[..., :2], (0, 1)), atol=1e-5)


def test_resampling_is_sampling(posterior, key):
    again, plain = posterior.resample(30, key=key), posterior.sample(30, key=key)
    np.testing.assert_array_equal(again["a"], plain["a"])


def test_an_audit_of_chains_changes_nothing(posterior, key):
    after = audited(posterior, key=key)
    assert after.audit is None
    assert after.sampler is posterior.sampler


@pytest.mark.parametrize("method", ["sample", "weighted_sample", "resample"])
def test_stored_draws_have_no_steps(posterior, key, method):
    with pytest.raises(InputError, match="the draws of nuts are stored already"):
        getattr(posterior, method)(5, key=key, num_steps=3)


def test_the_datatree_keeps_the_chains_apart(posterior, key):
    tree = posterior.to_datatree(key=key)
    assert set(tree.children) == {"posterior", "sample_stats"}
    # Chains carry no weights.
    assert set(tree["sample_stats"].data_vars) == {"lp"}
    values = tree["posterior"]["a"]
    assert values.dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(values, posterior.sampler.draws[..., :2])
    assert tree["posterior"].attrs["rhat"] == posterior.diagnostics(key=key).rhat
    assert tree["posterior"].attrs["exact"] == 1


def test_a_datatree_of_some_draws_keeps_their_order(posterior, key):
    values = posterior.to_datatree(key=key, num_samples=28)["posterior"]["a"].values
    assert values.shape == (NUM_CHAINS, 10, 2)
    for chain, kept in zip(posterior.sampler.draws[..., :2], values, strict=True):
        places = [int(np.flatnonzero((chain == draw).all(axis=1))[0]) for draw in kept]
        assert set(np.diff(places)) == {4}


def test_more_draws_than_there_are_do_not_go_into_a_datatree(posterior, key):
    tree = posterior.to_datatree(key=key, num_samples=10_000)
    assert tree["posterior"]["b"].shape == (NUM_CHAINS, LENGTH)
    with pytest.raises(InputError, match="num_samples must be a whole number"):
        posterior.to_datatree(key=key, num_samples=0)


def test_draws_of_chains_with_shares_are_exported_in_proportion(key):
    draws = np.repeat(np.arange(4.0, dtype=np.float32), 100).reshape(4, 100, 1)
    draws = np.broadcast_to(draws, (4, 100, 3)).copy()
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    shared = Posterior(target(), StoredDraws(draws, "by hand", exact=False, shares=shares))
    tree = shared.to_datatree(key=key)
    values = tree["posterior"]["a"].values[..., 0]
    # One chain, of whose 400 draws each has its part: no weights are left.
    np.testing.assert_array_equal(np.unique(values, return_counts=True)[1], 400 * shares)
    assert tree["posterior"].attrs["resampled"] == 1
    assert "log_weight" not in tree["sample_stats"]
    kept = shared.to_datatree(key=key, resampled=False)
    assert kept["posterior"]["a"].shape[:2] == (4, 100)
    weights = np.exp(kept["sample_stats"]["log_weight"].values)
    np.testing.assert_allclose(weights.sum(axis=1) / 400, shares, rtol=1e-5)


def test_few_draws_of_many_chains_make_a_datatree(key):
    many = Posterior(target(), stored(num_chains=8, length=4))
    assert many.to_datatree(key=key)["posterior"]["b"].shape == (8, 4)


def test_stored_draws_survive_saving(posterior, key, tmp_path):
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", target())
    np.testing.assert_array_equal(loaded.sampler.draws, posterior.sampler.draws)
    assert loaded.sampler.describe() == posterior.sampler.describe()
    assert (loaded.notes, loaded.gradient_evaluations) == (("a note",), 7)
    np.testing.assert_array_equal(loaded.history["loss"], posterior.history["loss"])
    again, plain = loaded.sample(9, key=key), posterior.sample(9, key=key)
    np.testing.assert_array_equal(again["b"], plain["b"])


def test_stored_draws_of_another_precision_are_refused(posterior, tmp_path, x64):
    posterior.save(tmp_path / "run")
    with pytest.raises(FileError, match=r"(?s)float32.*not float64.*precision"):
        follmer.load(tmp_path / "run", target())


def diagnosed(**options):
    return Posterior(target(), stored(**options)).diagnostics(key=jax.random.key(0))


def test_rhat_tells_chains_apart():
    assert diagnosed(length=1000).rhat < 1.01
    assert diagnosed(length=1000, spread=3.0).rhat > 1.5
    assert np.isnan(diagnosed(num_chains=1).rhat)


def test_the_worst_coordinate_is_the_one_that_counts():
    draws = np.random.default_rng(0).normal(size=(4, 500, 1000))
    # A random walk in one coordinate; the last is always looked at.
    draws[:, :, -1] = np.cumsum(draws[:, :, -1], axis=1)
    assert diagnose_chains(draws, exact=True).ess_fraction < 0.1
    assert diagnose_chains(draws[:, :, :-1], exact=True).ess_fraction > 0.5


def test_independent_draws_are_all_effective():
    found = diagnosed(num_chains=4, length=1000)
    assert found.num_draws == 4000
    assert 0.7 < found.ess_fraction < 1.3


@pytest.mark.parametrize("length", [1, 3])
def test_too_few_draws_have_no_diagnostics(length):
    found = diagnosed(length=length)
    assert np.isnan([found.rhat, found.ess_fraction]).all()
    assert judge(found).name == "do not use"


def test_chains_that_never_moved_are_not_used():
    found = diagnose_chains(np.zeros((4, 100, 2)), exact=True)
    assert judge(found).name == "do not use"


def test_the_summary_shows_moments_rhat_and_a_verdict(posterior, key):
    lines = posterior.summary(key=key).splitlines()
    found = posterior.diagnostics(key=key)
    text = "\n".join(lines)
    assert f"R-hat{found.rhat:>17.3f}   chains agree below 1.01" in text
    assert "of 120 draws" in text
    assert "note: a note" in text
    assert "ln Z" not in text
    assert lines[-1].startswith(f"Verdict: {judge(found).name}. ")
    single = Posterior(target(), stored(num_chains=1)).summary(key=key)
    assert "needs several chains" in single


@pytest.mark.parametrize(
    ("operations", "count", "expected"),
    [
        (100.0, 16383, 256),  # one program for all usual numbers
        (100.0, 16384, 4096),  # the most
        (4e5, 16384, 1024),  # 5e8 operations
        (1e8, 16384, 256),  # never fewer than usual
    ],
)
def test_more_draws_are_made_at_once_where_many_are_wanted(operations, count, expected):
    assert draws_at_once(operations, count) == expected


def test_draws_in_bulk_are_the_same(key):
    target = Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(2))
    normal = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], jnp.float32)
    sampler = MixtureFlow(target, normal, candidates=2)
    few, many = (sampler.sample(n, key, None, progress=False) for n in (16383, 16384))
    for one, other in zip(few, many, strict=True):
        np.testing.assert_allclose(one, other[:-1], rtol=1e-5, atol=1e-6)
