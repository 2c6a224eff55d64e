import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from follmer import InputError, NonFiniteError, Posterior, Target, nuts
from follmer.baselines.starts import scattered

NUM_SAMPLES, NUM_CHAINS = 400, 4
DATA = np.random.default_rng(0).normal(0.7, 1.0, 20)
SMALL = {"num_samples": 5, "num_warmup": 5, "num_chains": 2, "progress": False}


def conjugate():
    """A normal mean under a normal prior, and a rate of its own: Exponential(1)."""
    return Target(
        log_prior=lambda theta: norm.logpdf(theta["mean"]) - theta["rate"],
        log_likelihood=lambda theta, batch: norm.logpdf(batch, theta["mean"]),
        data=jnp.asarray(DATA, jnp.float32),
        like={"mean": 0.0, "rate": 1.0},
        constraints={"rate": constraints.positive},
    )


@pytest.fixture(scope="module")
def posterior():
    return nuts(
        conjugate(),
        key=jax.random.key(0),
        num_samples=NUM_SAMPLES,
        num_warmup=300,
        num_chains=NUM_CHAINS,
        progress=False,
    )


def test_it_matches_the_closed_form(posterior, key):
    count = NUM_SAMPLES * NUM_CHAINS
    found = posterior.diagnostics(key=key)
    effective = found.ess_fraction * count
    assert effective > 300
    draws = posterior.sample(count, key=key)
    mean, sd = DATA.sum() / 21, 1 / np.sqrt(21)
    assert abs(np.mean(draws["mean"]) - mean) < 4 * sd / np.sqrt(effective)
    assert abs(np.std(draws["mean"]) - sd) < 4 * sd / np.sqrt(2 * effective)
    # Of an exponential: mean and sd 1, fourth central moment 9.
    assert abs(np.mean(draws["rate"]) - 1) < 4 / np.sqrt(effective)
    assert abs(np.var(draws["rate"]) - 1) < 4 * np.sqrt(8 / effective)


def test_chains_that_agree_are_trusted(posterior, key):
    found = posterior.diagnostics(key=key)
    assert (found.num_chains, found.num_draws) == (NUM_CHAINS, NUM_SAMPLES * NUM_CHAINS)
    assert found.exact
    assert found.rhat < 1.02
    assert "R-hat" in posterior.summary(key=key)


def test_it_is_a_posterior_and_counts_its_gradients(posterior):
    assert type(posterior) is Posterior
    assert posterior.notes[0] == "NUTS: 300 iterations of warm-up in each chain"
    # A trajectory takes at least one step.
    assert posterior.gradient_evaluations > NUM_CHAINS * (300 + NUM_SAMPLES)


def test_divergences_are_told(key):
    # The gradient promises a slope that the value does not have.
    @jax.custom_jvp
    def cliff(x):
        return -0.5 * jnp.sum(x**2)

    @cliff.defjvp
    def _(primals, tangents):
        return cliff(*primals), 1e4 * jnp.sum(tangents[0])

    options = SMALL | {"num_warmup": 1, "num_samples": 50}
    posterior = nuts(Target(cliff, jnp.zeros(2)), key=key, **options)
    assert posterior.diagnostics(key=key).divergences > 0
    assert "trajectories diverged" in posterior.notes[1]


@pytest.mark.slow
def test_keys_decide_the_draws(key):
    first, again = (nuts(conjugate(), key=key, **SMALL).sampler.draws for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (2, 5, 2)


def test_starts_avoid_where_the_density_is_not_finite(key):
    half = Target(lambda x: jnp.where(x > 0, -x, jnp.nan), 0.0)
    found = scattered(half, 50, key)
    assert found.shape == (50, 1)
    assert np.all((found > 0) & (found < 2))


def test_a_density_that_is_finite_nowhere_near_raises(key):
    far = Target(lambda x: jnp.where(x > 50, -x, -jnp.inf), 0.0)
    with pytest.raises(NonFiniteError, match=r"(?s)16 random starts in a row.*start="):
        nuts(far, key=key, **SMALL)


@pytest.mark.slow
def test_the_start_is_where_chains_start(key):
    far = Target(lambda x: jnp.where(x > 50, -x, -jnp.inf), 0.0)
    assert np.all(nuts(far, key=key, start=51.0, **SMALL).sampler.draws > 50)


@pytest.mark.slow
def test_double_precision(x64, key):
    target = Target(lambda x: -jnp.sum(x**2), jnp.zeros(2))
    assert nuts(target, key=key, **SMALL).sample(3, key=key).dtype == jnp.float64


def test_without_blackjax_the_extra_is_named(key, monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(InputError, match=r"(?s)follmer.nuts needs blackjax.*follmer\[blackjax\]"):
        nuts(conjugate(), key=key)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "num_samples must be a whole number"),
        ({"num_warmup": 0}, "num_warmup must be a whole number"),
        ({"num_chains": -1}, "num_chains must be a whole number"),
        ({"target_acceptance": 1.0}, r"target_acceptance must be a number in \[0, 1\)"),
        ({"target_acceptance": 0.0}, "target_acceptance must be above 0"),
        ({"start": {"mean": 0.0, "rate": -1.0}}, "start is not finite"),
        ({"key": 0}, "key is not a JAX random key"),
        ({"warmup": 5}, r"(?s)'warmup' is not an option.*'num_warmup'\?"),
    ],
)
def test_bad_options(key, options, message):
    with pytest.raises(InputError, match=message):
        nuts(conjugate(), **{"key": key} | SMALL | options)


def test_what_is_no_target_is_refused(key):
    with pytest.raises(InputError, match=r"target is function, not a follmer.Target"):
        nuts(jnp.sum, key=key)
