"""The Föllmer drift by the heat semigroup, and the sampler MC-SFS built on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.drifts import GaussianDrift, HeatSemigroup
from follmer.paths import Diffusion, grid_times, uniform

MEAN = jnp.array([0.4, -0.3])
COVARIANCE = jnp.array([[0.6, 0.2], [0.2, 0.5]])


def log_gaussian(x):
    return jax.scipy.stats.multivariate_normal.logpdf(x, MEAN, COVARIANCE)


def log_terminal(log_density, gamma, offset=0.0):
    diffusion = Diffusion(2, gamma, grid_times(uniform, 1), jnp.float32)
    return lambda x: log_density(x) - diffusion.log_reference(x) + offset


@pytest.mark.parametrize("use_gradient", [False, True])
@pytest.mark.parametrize("gamma", [0.8, 1.7])
def test_monte_carlo_drift_agrees_with_the_closed_form(gamma, use_gradient):
    """γ enters as a factor: without it the two differ by 1/γ."""
    exact = GaussianDrift(MEAN, COVARIANCE, gamma=gamma)

    def estimate(key, t, x):
        log_f = log_terminal(log_gaussian, gamma)
        return HeatSemigroup(log_f, gamma, 5000, use_gradient, key)(t, x)

    keys = jax.random.split(jax.random.key(0), 64)
    for t, x in [(0.0, [0.0, 0.0]), (0.3, [0.5, -0.4]), (0.8, [-0.2, 0.6])]:
        t, x = jnp.float32(t), jnp.array(x)
        estimates = np.asarray(jax.vmap(estimate, (0, None, None))(keys, t, x))
        se = estimates.std(axis=0) / np.sqrt(len(keys))
        # Self-normalisation adds a bias of order 1/5000, far below the 64-fold average's se.
        assert (np.abs(estimates.mean(axis=0) - exact(t, x)) < 4.5 * se).all()
        assert (se < 0.03).all()


@pytest.mark.parametrize("use_gradient", [False, True])
@pytest.mark.parametrize("offset", [-800.0, 800.0])
def test_the_stable_form_holds_where_the_naive_one_overflows(offset, use_gradient):
    t, x, key = jnp.float32(0.3), jnp.array([0.5, -0.4]), jax.random.key(0)

    def drift(offset):
        log_f = log_terminal(log_gaussian, 1.0, offset)
        return HeatSemigroup(log_f, 1.0, 1000, use_gradient, key)

    z = jax.random.normal(key, (1000, 2))
    f = jnp.exp(jax.vmap(drift(offset).log_terminal)(x + jnp.sqrt(1 - t) * z))
    naive = f @ z / (jnp.sqrt(1 - t) * jnp.sum(f))
    assert not np.isfinite(naive).any()
    np.testing.assert_allclose(drift(offset)(t, x), drift(0.0)(t, x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("variant", ["stein", "gradient"])
def test_mc_sfs_samples_a_gaussian_mixture(variant):
    modes, shares, sd = jnp.array([[-1.2, 0.0], [1.2, 0.5]]), jnp.array([0.3, 0.7]), 0.5

    def log_density(x):
        return jax.nn.logsumexp(jnp.sum(jax.scipy.stats.norm.logpdf(x, modes, sd), 1), b=shares)

    target = follmer.Target(log_density, like=jnp.zeros(2))
    posterior = follmer.mc_sfs(
        target, num_samples=500, num_steps=30, gamma=2.0, variant=variant, grid="geometric"
    )
    draws, log_weights = posterior.weighted_sample(512, key=jax.random.key(1))
    found = posterior.diagnostics(key=jax.random.key(1), num_samples=512)
    assert abs(found.log_evidence) < 4.5 * found.log_evidence_se
    assert found.ess_fraction > 0.3
    weights = np.asarray(jax.nn.softmax(log_weights))
    left = np.asarray(draws[:, 0] < 0)
    # Two modes 2.4 apart with sd 0.5: the share left of 0 is 0.3 Φ(2.4) + 0.7 Φ(−2.4).
    expected = 0.3 * 0.9918 + 0.7 * 0.0082
    se = np.sqrt(np.sum(weights**2 * (left - expected) ** 2))
    assert abs(weights @ left - expected) < 4.5 * se < 0.15
    spread = np.asarray(draws[left]).std(axis=0)
    assert (np.abs(spread - sd) < 0.15).all()
