"""Densities that do not fall off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from follmer import Target
from follmer.mcmc.tails import flat_direction
from follmer.targets import Density

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
