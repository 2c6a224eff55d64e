"""Gaussians read from secants, and densities that do not fall off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace, norm
from numpyro.distributions import constraints

from follmer import Target
from follmer.mcmc.curvature import flat_direction, gaussian_at, secant_precision
from follmer.targets import Density

SD = np.array([1e-2, 1.0, 30.0])
MEAN = np.array([0.1, -2.0, 50.0])
FLAT = {
    "flat": (lambda x: norm.logpdf(x[0]), (1,)),
    "half": (lambda x: norm.logpdf(x[0]) + jax.nn.log_sigmoid(x[1]), (1,)),
    "1/√r": (lambda x: norm.logpdf(x[0]) - 0.25 * jnp.log1p(x[1] ** 2), (1,)),
    "along a diagonal": (lambda x: norm.logpdf(x[0] - x[1]), (0, 1)),
}
PROPER = {
    "normal": lambda x: jnp.sum(norm.logpdf(x, 0.0, 1e3)),
    "Cauchy": lambda x: -jnp.sum(jnp.log1p(x**2)),
    "a second mode": lambda x: jnp.logaddexp(
        jnp.sum(norm.logpdf(x)), jnp.sum(norm.logpdf(x, 2e3, 1e3))
    ),
}


def density(log_density, dim):
    return Density(Target(log_density, like=jnp.zeros(dim)))


def test_it_is_exact_for_a_gaussian_of_mixed_scales():
    def scaled(x):
        return jnp.sum(norm.logpdf(x, jnp.asarray(MEAN), jnp.asarray(SD)))

    found = gaussian_at(density(scaled, 3), MEAN + 0.1 * SD)
    np.testing.assert_allclose(found.means[0], MEAN, atol=1e-2 * SD.max())
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariances[0])), SD, rtol=0.02)


def test_it_is_exact_for_a_correlated_gaussian(x64):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    covariance = (rotation * np.geomspace(1e-3, 1e3, 6)) @ rotation.T
    precision = jnp.asarray(np.linalg.inv(covariance))
    found = gaussian_at(density(lambda x: -0.5 * x @ precision @ x, 6), np.zeros(6))
    np.testing.assert_allclose(found.covariances[0], covariance, rtol=1e-3, atol=1e-3)


def test_kinks_flat_and_rising_directions_get_a_finite_scale():
    def log_density(x):
        # A kink, a direction without any curvature, and one that curves upwards at 0.
        return laplace.logpdf(x[0]) + 0.0 * x[1] - (x[2] ** 2 - 1.0) ** 2

    scale = np.sqrt(np.diag(gaussian_at(density(log_density, 3), np.zeros(3)).covariances[0]))
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    # The Laplace distribution's own standard deviation is √2.
    assert 0.5 < scale[0] < 3.0


def test_secants_are_in_the_factors_units():
    found = secant_precision(
        density(lambda x: -0.5 * jnp.sum((x / 3.0) ** 2), 2), np.zeros(2), 3.0 * np.eye(2)
    )
    np.testing.assert_allclose(found, np.eye(2), atol=1e-5)


def test_a_secant_into_nowhere_is_no_curvature():
    def bounded(x):
        return jnp.where(jnp.abs(x[0]) < 1.0, -(x[0] ** 2), jnp.nan) - 0.5 * x[1] ** 2

    found = secant_precision(density(bounded, 2), np.zeros(2), 5.0 * np.eye(2))
    assert np.isfinite(found).all()
    assert jax.numpy.asarray(found).shape == (2, 2)


@pytest.mark.parametrize(("log_density", "expected"), FLAT.values(), ids=FLAT)
def test_flat_directions_are_found(log_density, expected):
    density = Density(Target(log_density, like=jnp.zeros(2)))
    # The axes of a covariance that is wide along the diagonal.
    root = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2.0)
    assert flat_direction(density, np.zeros(2), root) == expected


@pytest.mark.parametrize("log_density", PROPER.values(), ids=PROPER)
def test_proper_densities_have_none(log_density):
    density = Density(Target(log_density, like=jnp.zeros(2)))
    assert flat_direction(density, np.zeros(2), np.eye(2)) == ()


def test_where_transforms_end_in_a_plateau_nothing_is_flat():
    target = Target(
        lambda x: jnp.sum(jnp.log(x)), like=jnp.full(3, 1 / 3), constraints=constraints.simplex
    )
    assert flat_direction(Density(target), np.zeros(2), np.eye(2)) == ()


@pytest.mark.parametrize(("prior_sd", "expected"), [(np.inf, (0, 1, 3)), (100.0, ())])
def test_predictors_that_are_sums_of_others_make_a_valley(prior_sd, expected):
    columns = np.random.default_rng(0).normal(size=(40, 3))
    columns = np.c_[columns, columns[:, 0] + columns[:, 1]]

    def regression(x):
        prior = 0.0 if np.isinf(prior_sd) else jnp.sum(norm.logpdf(x, 0.0, prior_sd))
        return prior + jnp.sum(norm.logpdf(columns @ jnp.ones(4), columns @ x))

    density = Density(Target(regression, like=jnp.zeros(4)))
    assert flat_direction(density, np.ones(4), np.eye(4)) == expected
