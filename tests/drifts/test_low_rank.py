"""A mixture of low-rank Gaussians against SciPy, and its drift against the h-transform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from follmer.drifts.low_rank import LowRankMixture

rng = np.random.default_rng(0)
POINTS = rng.normal(size=(3, 4, 6)) + rng.normal(size=(3, 1, 6))
WIDTH, FLOOR = 0.7, 0.3
SHARES = np.array([0.2, 0.5, 0.3])
COVARIANCES = np.stack([WIDTH**2 * np.cov(one.T) + FLOOR**2 * np.eye(6) for one in POINTS])


def mixture():
    parts = (POINTS, WIDTH, FLOOR, np.log(SHARES))
    return LowRankMixture(*(jnp.asarray(part) for part in parts))


def test_its_density_is_that_of_the_dense_mixture(x64):
    x = rng.normal(size=6)
    parts = [
        multivariate_normal(one.mean(0), covariance).logpdf(x)
        for one, covariance in zip(POINTS, COVARIANCES, strict=True)
    ]
    expected = logsumexp(parts, b=SHARES)
    assert float(mixture().log_density(jnp.asarray(x))) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("t", [0.01, 0.3, 0.9])
def test_its_drift_is_the_gradient_of_the_log_h_transform(x64, t):
    def log_h(x):
        # Σ_c N(x; t m, t² Σ + t(1 − t) I) over Brownian motion's N(x; 0, t).
        logs = []
        for share, points, covariance in zip(SHARES, POINTS, COVARIANCES, strict=True):
            spread = t**2 * covariance + t * (1 - t) * np.eye(6)
            away = x - t * points.mean(0)
            log_det = jnp.linalg.slogdet(spread)[1]
            density = -0.5 * (away @ jnp.linalg.solve(spread, away) + log_det)
            logs.append(np.log(share) + density)
        return jax.scipy.special.logsumexp(jnp.stack(logs)) + 0.5 * x @ x / t

    x = jnp.asarray(rng.normal(size=6))
    np.testing.assert_allclose(mixture()(jnp.asarray(t), x), jax.grad(log_h)(x), rtol=1e-9)


def test_it_starts_towards_the_mean(x64):
    drift = mixture()(jnp.zeros(()), jnp.zeros(6))
    np.testing.assert_allclose(drift, SHARES @ POINTS.mean(1), rtol=1e-9)


def test_its_draws_have_the_mixtures_moments(x64):
    draws = np.asarray(jax.vmap(mixture().draw)(jax.random.split(jax.random.key(0), 20_000)))
    means = POINTS.mean(1)
    mean = SHARES @ means
    between = np.einsum("c,ci,cj->ij", SHARES, means - mean, means - mean)
    covariance = np.tensordot(SHARES, COVARIANCES, 1) + between
    error = np.sqrt(np.diag(covariance) / len(draws))
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * error)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * np.diag(covariance).max())
    assert len(np.unique(draws[:, 0])) == len(draws)
