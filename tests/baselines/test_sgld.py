"""Langevin dynamics against its own stationary law, which for a normal target is known exactly."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer import InputError, NonFiniteError, Posterior, Target, sgld
from follmer.tools import progress

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.5], [0.5, 1.0]])
QUIET = {"progress": False}


def normal():
    precision = jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32)
    return Target(lambda x: -0.5 * (x - MEAN) @ precision @ (x - MEAN), jnp.zeros(2))


def flat(like=None):
    """No gradient: what moves is the noise alone."""
    return Target(
        lambda theta: 0.0 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(theta)),
        jnp.zeros(2) if like is None else like,
    )


def conjugate(num_data=40):
    """The mean of a normal of sd 1; prior N(0, 1). Posterior N(Σy/(N+1), 1/(N+1))."""
    y = np.random.default_rng(0).normal(0.7, 1.0, num_data)
    return Target(
        log_prior=norm.logpdf,
        log_likelihood=lambda theta, batch: norm.logpdf(batch, theta),
        data=jnp.asarray(y, jnp.float32),
        like=0.0,
    ), y


@pytest.fixture(scope="module")
def small():
    return sgld(normal(), key=jax.random.key(0), num_iterations=40, thinning=2, **QUIET)


def chains(posterior):
    return posterior.sampler.draws


def test_full_batches_reach_mean_and_covariance(key):
    step, thinning, length = 0.2, 20, 300
    posterior = sgld(
        normal(),
        key=key,
        step_size=step,
        num_iterations=200 + thinning * length,
        burn_in=200,
        thinning=thinning,
        num_chains=8,
        **QUIET,
    )
    draws = posterior.sample(8 * length, key=key)
    # The chain is linear: its law is normal around the same mean with Σ(I − λΣ⁻¹/4)⁻¹.
    stationary = COVARIANCE @ np.linalg.inv(np.eye(2) - step / 4 * np.linalg.inv(COVARIANCE))
    # Eigenvalue 1.5 forgets slowest: correlation r after each kept draw.
    r = (1 - step / 2 / 1.5) ** thinning
    effective = 8 * length * (1 - r) / (1 + r)
    se = np.sqrt(stationary[0, 0] / effective)
    np.testing.assert_allclose(np.mean(draws, axis=0), MEAN, atol=4 * se)
    spread = 4 * np.sqrt(2 / effective) * stationary[0, 0]
    np.testing.assert_allclose(np.cov(draws.T), stationary, atol=spread)
    found = posterior.diagnostics(key=key)
    assert found.rhat < 1.02
    assert found.ess_fraction * 8 * length > 0.5 * effective


def test_mini_batches_reach_the_conjugate_posterior(key):
    target, y = conjugate()
    step, thinning, length, size = 0.01, 10, 300, 4
    posterior = sgld(
        target,
        key=key,
        step_size=step,
        num_iterations=100 + thinning * length,
        burn_in=100,
        thinning=thinning,
        batch_size=size,
        num_chains=8,
        **QUIET,
    )
    draws = np.asarray(posterior.sample(8 * length, key=key))
    # x' − m = (1 − a)(x − m) + noise, a = λ(N+1)/2; the batch adds (λ/2)² N²/B var(y).
    n = len(y)
    shrink = 1 - step * (n + 1) / 2
    variance = (step + (step / 2) ** 2 * n**2 / size * y.var()) / (1 - shrink**2)
    r = shrink**thinning
    effective = 8 * length * (1 - r) / (1 + r)
    assert abs(draws.mean() - y.sum() / (n + 1)) < 4 * np.sqrt(variance / effective)
    assert abs(draws.var() - variance) < 4 * np.sqrt(2 / effective) * variance
    # Without the batches' noise the variance would be clearly another.
    assert variance > 1.3 * step / (1 - shrink**2)
    assert posterior.gradient_evaluations == 8 * (100 + thinning * length)


def test_a_batch_of_all_the_data_is_all_the_data(key):
    target, y = conjugate()
    options = {"num_iterations": 10, "step_size": 0.01, "thinning": 1, **QUIET}
    whole = sgld(target, key=key, **options)
    same = sgld(target, key=key, batch_size=len(y), **options)
    np.testing.assert_array_equal(chains(whole), chains(same))


def test_noise_is_added_at_every_step_with_the_variance_of_the_step(key):
    schedule = follmer.PolynomialDecay(3.0, b=5.0)
    posterior = sgld(
        flat(),
        key=key,
        step_size=schedule,
        num_iterations=20,
        burn_in=0,
        thinning=1,
        num_chains=2000,
        **QUIET,
    )
    increments = np.diff(chains(posterior), axis=1)
    found = increments.var(axis=(0, 2))
    expected = [schedule(i) for i in range(1, 20)]
    np.testing.assert_allclose(found, expected, rtol=5 * np.sqrt(2 / 4000))


def test_the_gradient_moves_by_half_the_step(key):
    slope = Target(lambda x: 1000.0 * x, 0.0)
    posterior = sgld(
        slope, key=key, step_size=0.5, num_iterations=2, burn_in=0, thinning=1, start=0.0, **QUIET
    )
    # 250 a step, with noise of sd √½.
    np.testing.assert_allclose(np.diff(chains(posterior).ravel()), 250.0, atol=4.0)


def test_separate_step_sizes_act_on_their_own_leaves(key):
    target = flat({"abundances": jnp.zeros((2, 2)), "variance": 0.0})
    posterior = sgld(
        target,
        key=key,
        step_size={"abundances": follmer.PolynomialDecay(10.0), "variance": 1e-4},
        num_iterations=1,
        burn_in=0,
        thinning=1,
        num_chains=4000,
        start={"abundances": jnp.zeros((2, 2)), "variance": 0.0},
        **QUIET,
    )
    draws = posterior.sample(4000, key=key)
    relative = 5 * np.sqrt(2 / 4000)
    np.testing.assert_allclose(np.var(draws["abundances"], axis=0), 10**0.45, rtol=relative)
    np.testing.assert_allclose(np.var(draws["variance"]), 1e-4, rtol=relative)


def test_separate_step_sizes_leave_the_stationary_law_alone(key):
    target = Target(
        lambda theta: norm.logpdf(theta["wide"], 0.0, 3.0) + norm.logpdf(theta["narrow"], 0.0, 0.1),
        {"narrow": 0.0, "wide": 0.0},
    )
    # Steps in proportion to the variances: both coordinates behave alike.
    posterior = sgld(
        target,
        key=key,
        step_size={"narrow": 0.2 * 0.1**2, "wide": 0.2 * 3.0**2},
        num_iterations=4000,
        burn_in=100,
        thinning=20,
        num_chains=8,
        **QUIET,
    )
    count = chains(posterior)[..., 0].size
    draws = posterior.sample(count, key=key)
    r = 0.9**20
    relative = 4 * np.sqrt(2 / count * (1 + r) / (1 - r))
    np.testing.assert_allclose(np.var(draws["wide"]), 9.0 / 0.95, rtol=relative)
    np.testing.assert_allclose(np.var(draws["narrow"]), 0.01 / 0.95, rtol=relative)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"num_iterations": 20}, 1),
        ({"num_iterations": 41, "burn_in": 10}, 3),
        ({"num_iterations": 10, "burn_in": 0, "thinning": 1}, 10),
        ({"num_iterations": 10, "burn_in": 9, "thinning": 1}, 1),
    ],
)
def test_burn_in_and_thinning_decide_how_many_draws_are_kept(key, options, kept):
    posterior = sgld(flat(), key=key, num_chains=3, step_size=0.1, **options, **QUIET)
    assert chains(posterior).shape == (3, kept, 2)


def test_thinning_and_burn_in_keep_draws_of_the_same_chain(key):
    options = {"key": key, "step_size": 0.1, "num_iterations": 12, **QUIET}
    every = chains(sgld(normal(), burn_in=0, thinning=1, **options))
    some = chains(sgld(normal(), burn_in=4, thinning=3, **options))
    np.testing.assert_array_equal(some[0], every[0, [6, 9]])


@pytest.mark.parametrize("seconds", [0.0, 1e9], ids=["one by one", "all at once"])
def test_draws_do_not_depend_on_speed(small, monkeypatch, seconds):
    monkeypatch.setattr(progress, "SECONDS_PER_CALL", seconds)
    again = sgld(normal(), key=jax.random.key(0), num_iterations=40, thinning=2, **QUIET)
    np.testing.assert_array_equal(chains(again), chains(small))


def test_chains_differ_and_keys_decide(small, key):
    two = chains(sgld(normal(), key=key, num_iterations=10, thinning=1, num_chains=2, **QUIET))
    assert np.all(two[0] != two[1])
    other = sgld(normal(), key=jax.random.key(1), num_iterations=40, thinning=2, **QUIET)
    assert np.all(chains(other) != chains(small))


def test_constrained_draws_stay_in_their_support(key):
    target = Target(lambda theta: -theta["rate"], {"rate": 1.0}, {"rate": constraints.positive})
    posterior = sgld(target, key=key, num_iterations=50, thinning=1, start={"rate": 2.0}, **QUIET)
    assert jnp.all(posterior.sample(25, key=key)["rate"] > 0)


def test_the_start_is_where_chains_start(key):
    posterior = sgld(
        normal(),
        key=key,
        step_size=1e-12,
        start=jnp.array([5.0, 6.0]),
        num_iterations=2,
        thinning=1,
        **QUIET,
    )
    np.testing.assert_allclose(chains(posterior)[0, 0], [5.0, 6.0], atol=1e-4)


def test_double_precision(x64, key):
    target = Target(lambda x: -jnp.sum(x**2), jnp.zeros(2))
    posterior = sgld(target, key=key, num_iterations=10, thinning=1, **QUIET)
    assert posterior.sample(3, key=key).dtype == jnp.float64


@pytest.mark.parametrize("burn_in", [0, 500])
def test_a_chain_that_diverges_raises(key, burn_in):
    with pytest.raises(NonFiniteError, match=r"(?s)SGLD is no longer finite.*smaller step_size"):
        sgld(normal(), key=key, step_size=10.0, num_iterations=1000, burn_in=burn_in, **QUIET)


def test_it_is_a_posterior_and_says_what_was_run(small):
    assert type(small) is Posterior
    assert small.notes == ("SGLD: 40 iterations, the first 20 dropped, 1 in 2 kept",)
    assert small.gradient_evaluations == 40


def test_the_progress_bar_is_shown_and_hidden(key, capfd):
    sgld(flat(), key=key, num_iterations=20, **QUIET)
    assert capfd.readouterr().err == ""
    sgld(flat(), key=key, num_iterations=20)
    assert "20/20" in capfd.readouterr().err


def test_without_blackjax_the_extra_is_named(key, monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(InputError, match=r"(?s)follmer.sgld needs blackjax.*follmer\[blackjax\]"):
        sgld(normal(), key=key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_iterations": 0}, "num_iterations must be a whole number"),
        ({"thinning": 0}, "thinning must be a whole number"),
        ({"num_chains": 1.5}, "num_chains must be a whole number"),
        ({"burn_in": -1}, "burn_in must be a whole number of at least 0"),
        ({"burn_in": 100, "num_iterations": 100}, "nothing would be kept of 100 iterations"),
        ({"batch_size": 5}, "the target has no data"),
        ({"step_size": -1.0}, "step_size must be a finite number above 0"),
        ({"start": jnp.zeros(3)}, r"leaf theta has shape \(3,\)"),
        ({"start": jnp.array([0.0, np.inf])}, "start is not finite"),
        ({"key": 0}, "key is not a JAX random key"),
        ({"stepsize": 0.1}, r"(?s)'stepsize' is not an option.*'step_size'\?"),
    ],
)
def test_bad_options(key, options, message):
    with pytest.raises(InputError, match=message):
        sgld(normal(), **{"key": key, **QUIET} | options)


def test_a_batch_larger_than_the_data_is_refused(key):
    with pytest.raises(InputError, match="batch_size=41 exceeds the 40 data points"):
        sgld(conjugate()[0], key=key, batch_size=41)


def test_what_is_no_target_is_refused(key):
    with pytest.raises(InputError, match=r"target is function, not a follmer.Target"):
        sgld(norm.logpdf, key=key)
