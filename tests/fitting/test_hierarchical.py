"""Hundreds of local variables in one plain target: the mode misleads, NUTS is the judge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm, poisson

import follmer


def poisson_effects(num_counts):
    """y ~ Poisson(exp(b₀ + b₁x + σe)), e ~ N(0, I): densest at an enormous σ and tiny e."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=num_counts)
    y = jnp.asarray(rng.poisson(np.exp(0.5 + 0.3 * x + 0.7 * rng.normal(size=num_counts))))
    x = jnp.asarray(x)

    def log_density(theta):
        prior = norm.logpdf(theta["log_sigma"], -0.5, 0.5) + jnp.sum(norm.logpdf(theta["b"]))
        rate = jnp.exp(theta["b"][0] + theta["b"][1] * x + jnp.exp(theta["log_sigma"]) * theta["e"])
        return prior + jnp.sum(norm.logpdf(theta["e"])) + jnp.sum(poisson.logpmf(y, rate))

    like = {"log_sigma": 0.0, "b": jnp.zeros(2), "e": jnp.zeros(num_counts)}
    return follmer.Target(log_density, like=like)


@pytest.mark.slow
def test_the_globals_of_four_hundred_effects_are_those_of_nuts(key):
    target = poisson_effects(400)
    posterior = follmer.fit(target, key=key, progress=False)
    assert posterior.diagnostics(key=jax.random.key(1)).ess_fraction > 0.1
    draws = posterior.resample(4000, key=jax.random.key(2))
    truth = follmer.nuts(target, key=jax.random.key(3), progress=False)
    exact = truth.sample(4000, key=jax.random.key(4))
    for name in ("log_sigma", "b"):
        error = np.mean(draws[name], axis=0) - np.mean(exact[name], axis=0)
        # 400 of the draws are effective, and a few hundred of NUTS's.
        assert np.all(np.abs(error) < 0.25 * np.std(exact[name], axis=0))
