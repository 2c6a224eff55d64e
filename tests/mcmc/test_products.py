"""Independent mixtures along axes: fitted, drawn from, and turned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import Target, fit
from follmer.drifts import ProductMixture
from follmer.mcmc.products import Product, fit_product, independent_rotation, reweighed_product

ROTATION = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]


def skewed(rng, count):
    """Logarithms of exponential variables, independent and of unit variance."""
    return np.log(rng.exponential(size=(count, 3))) * np.sqrt(6) / np.pi


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def product():
    ones = np.ones((2, 2))
    return Product(
        np.array([1.0, -1.0]),
        np.array([[2.0, 0.5], [0.0, 1.0]]),
        np.array([[0.3, 0.7], [1.0, 0.0]]),
        np.array([[-2.0, 2.0], [0.0, 0.0]]),
        0.5 * ones,
    )


def test_density_and_draws_belong_together(product, rng):
    x = product.draw(200_000, rng)
    # E_p[N(x; m, s²)/p(x)] = 1 for any normal that is narrow beside p.
    z = (x - product.origin - product.axes @ [2.0, 0.0]) / 0.4
    logs = -0.5 * np.sum(z**2, axis=1) - np.log(2 * np.pi * 0.4**2) - product.log_density(x)
    ratios = np.exp(logs)
    assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / np.sqrt(len(x))


def test_the_device_has_the_same_density_and_the_same_draws(product, rng, key):
    placed = ProductMixture(*product, jnp.float32)
    x = product.draw(64, rng)
    on_device = jax.vmap(placed.log_density)(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(on_device, product.log_density(x), rtol=1e-4, atol=1e-4)
    drawn = np.asarray(jax.vmap(placed.draw)(jax.random.split(key, 40_000)), float)
    expected = product.draw(40_000, rng)
    error = 5 * expected.std(axis=0) * np.sqrt(2 / 40_000)
    assert np.all(np.abs(drawn.mean(axis=0) - expected.mean(axis=0)) < error)
    assert np.all(np.abs(drawn.std(axis=0) / expected.std(axis=0) - 1.0) < 0.03)


def test_independent_components_are_found(rng):
    x = skewed(rng, 20_000) @ ROTATION.T
    root = np.linalg.cholesky(np.cov(x.T))
    found = np.linalg.solve(root @ independent_rotation(x, root, rng), ROTATION)
    # Each row has one entry of size 1: a permutation, up to signs and the errors of 20 000 draws.
    assert np.all(np.sort(np.abs(found), axis=1)[:, :2] < 0.05)


def test_turned_axes_are_chosen_where_they_fit_better(rng):
    x, others = (skewed(rng, 8000) @ ROTATION.T for _ in range(2))
    turned = fit_product(x, others, rng)
    assert np.abs(turned.axes - np.diag(np.diag(turned.axes))).max() > 0.1
    straight = fit_product(skewed(rng, 8000), skewed(rng, 8000), rng)
    logs = straight.log_density(skewed(rng, 8000))
    # Within 4 standard errors, and the cost of 51 parameters from 4096 draws, of the entropy of
    # three such variables.
    exact = 3 * (1 + np.euler_gamma + np.log(np.sqrt(6) / np.pi))
    assert abs(-np.mean(logs) - exact) < 4 * logs.std() / np.sqrt(8000) + 51 / (2 * 4096)


def test_weights_mend_a_product(rng):
    x, others = skewed(rng, 300), skewed(rng, 8000)
    rough = fit_product(x, x, rng)
    scale = np.sqrt(6) / np.pi

    def log_density(x):
        return np.sum(x / scale - np.exp(x / scale), axis=1)

    better = reweighed_product(rough, log_density, others, rng)
    assert np.mean(better.log_density(others)) > np.mean(rough.log_density(others))


def test_a_product_of_wells_has_too_many_modes_for_a_mixture(key):
    """ln Z of one well, ∫ exp(−(x² − 4)²) dx, by quadrature."""
    grid = np.linspace(-5, 5, 100_001)
    exact = 12 * np.log(np.sum(np.exp(-((grid**2 - 4) ** 2))) * (grid[1] - grid[0]))
    target = Target(lambda x: -jnp.sum((x**2 - 4.0) ** 2), like=jnp.zeros(12))
    posterior = fit(target, key=key, progress=False)
    assert isinstance(posterior.sampler.mixture, ProductMixture)
    assert posterior.verdict.is_usable
    found = posterior.diagnostics(key=key)
    assert abs(found.log_evidence - exact) < 0.1
    assert found.ess_fraction > 0.5
