"""The Gaussian mixture: its density, its draws, and gradients that stay numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from follmer.drifts import GaussianMixture

SHARES = np.array([0.2, 0.5, 0.3])
MEANS = np.array([[-2.0, 0.0], [1.0, 1.0], [0.5, -3.0]])
FACTORS = np.array([[[0.5, 0.0], [0.2, 0.3]], [[1.0, 0.0], [-0.5, 0.7]], [[0.2, 0.0], [0.0, 2.0]]])
COVARIANCES = FACTORS @ FACTORS.transpose(0, 2, 1)


def mixture(shares=SHARES, dtype="float32"):
    return GaussianMixture(shares, MEANS, FACTORS, dtype)


def components(x):
    return np.stack(
        [
            stats.multivariate_normal(mean, covariance).pdf(x)
            for mean, covariance in zip(MEANS, COVARIANCES, strict=True)
        ],
        axis=1,
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shares", [SHARES, np.array([0.4, 0.0, 0.6])], ids=["all", "one empty"])
def test_the_density_is_the_mixture_of_its_components(shares):
    x = np.random.default_rng(0).normal(size=(20, 2)) * 3
    found = jax.vmap(mixture(shares, "float64").log_density)(jnp.asarray(x))
    np.testing.assert_allclose(found, np.log(components(x) @ shares), rtol=1e-10)
    gradients = jax.vmap(jax.grad(mixture(shares, "float64").log_density))(jnp.asarray(x))
    assert np.isfinite(gradients).all()


def test_draws_have_the_shares_means_and_covariances_of_the_components(key):
    count = 20_000
    draws = np.asarray(jax.vmap(mixture().draw)(jax.random.split(key, count)), float)
    mean = SHARES @ MEANS
    second = np.einsum("c,cij->ij", SHARES, COVARIANCES + MEANS[:, :, None] * MEANS[:, None])
    errors = draws.std(axis=0) / np.sqrt(count)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 4.5 * errors)
    products = draws[:, :, None] * draws[:, None]
    errors = products.std(axis=0) / np.sqrt(count)
    np.testing.assert_array_less(np.abs(products.mean(axis=0) - second), 4.5 * errors)
    # Under its own density, the chance of a component averages to its share.
    chances = components(draws) * SHARES
    chances /= chances.sum(axis=1, keepdims=True)
    errors = chances.std(axis=0) / np.sqrt(count)
    np.testing.assert_array_less(np.abs(chances.mean(axis=0) - SHARES), 4.5 * errors)


def test_an_empty_component_is_never_drawn(key):
    draws = jax.vmap(mixture(np.array([1.0, 0.0, 0.0])).draw)(jax.random.split(key, 2000))
    # Of N(−2, .25) nothing is above 1.
    assert np.max(draws[:, 0]) < 1.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_and_density_keep_the_dtype(dtype, x64, key):
    one = mixture(dtype=dtype)
    draw = one.draw(key)
    assert draw.dtype == one.log_density(draw).dtype == dtype
