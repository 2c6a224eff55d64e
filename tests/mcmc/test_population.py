"""Draws by many short chains, and their diagnosis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target
from follmer.mcmc.chains import GROUP_SIZE, NUM_GROUPS, covariance_factor, worst_rhat
from follmer.mcmc.modes import find_modes
from follmer.mcmc.population import Population, fitted_proposal, fitted_site, populate
from follmer.mcmc.products import Product
from follmer.targets import Density

GROUP = np.repeat(np.arange(NUM_GROUPS), GROUP_SIZE)


def population(log_density, dim, key, max_calls=60):
    density = Density(Target(log_density, like=jnp.zeros(dim)))
    modes = find_modes(density, key)
    found = populate(density, modes, key, agree=1.01, max_calls=max_calls)
    return found, density


def test_one_gaussian_is_one_site_and_one_component(key):
    found, density = population(lambda x: jnp.sum(norm.logpdf(x, 3.0, 0.5)), 3, key)
    assert len(found.sites) == 1
    assert len(found.proposal.shares) == 1
    assert found.rhat < 1.01
    assert abs(found.log_evidence) < 1e-3
    x = found.draws(4096, np.random.default_rng(0))
    # 4 standard errors of a mean of at least 512 independent draws.
    np.testing.assert_allclose(x.mean(axis=0), 3.0, atol=4 * 0.5 / np.sqrt(512))
    assert density.gradient_evaluations > 10_000


def test_far_modes_have_their_masses(key):
    def two(x):
        far = jnp.sum(norm.logpdf(x, -30.0, 2.0)) + jnp.log(0.8)
        return jnp.logaddexp(far, jnp.sum(norm.logpdf(x, 5.0, 0.5)) + jnp.log(0.2))

    found, _ = population(two, 2, key)
    assert len(found.sites) == 2
    assert found.hold_mass.tolist() == [True, True]
    share = found.masses[[site.flat[:, 0].mean() < 0 for site in found.sites]]
    # By importance sampling from exact Gaussians; some effort is shared.
    assert abs(share[0] - 0.8) < 0.03
    assert abs(found.log_evidence) < 0.03
    x = found.draws(4096, np.random.default_rng(0), held_out=True)
    assert abs(np.mean(x[:, 0] < 0) - share[0]) < 4 * np.sqrt(0.16 / 4096)


def test_wells_in_many_dimensions_are_told_from_one_gaussian(key):
    """Too many for components of their own: one Gaussian is all that a mixture makes of them."""
    dim, rng = 24, np.random.default_rng(0)
    grid = np.linspace(-4.0, 4.0, 20_001)
    chances = np.exp(-((grid**2 - 2.0) ** 2))
    exact = rng.choice(grid, (64, NUM_GROUPS * GROUP_SIZE, dim), p=chances / chances.sum())
    density = Density(Target(lambda x: -jnp.sum((x**2 - 2.0) ** 2), like=jnp.zeros(dim)))
    gradients = density(exact.reshape(-1, dim))[1].reshape(exact.shape)
    site = fitted_site(exact, gradients, 1.0, rng)
    assert len(site.mixture.shares) == 1
    found = fitted_proposal(density, [site], np.ones(1), rng)
    assert isinstance(found, Product)
    x = found.draw(4096, rng)
    logs = density.values(x) - found.log_density(x)
    log_evidence = dim * np.log(chances.sum() * (grid[1] - grid[0]))
    ess = np.mean(np.exp(logs - logs.max())) ** 2 / np.mean(np.exp(2 * (logs - logs.max())))
    assert ess > 0.5
    error = np.sqrt((1.0 / ess - 1.0) / len(x))
    assert abs(np.logaddexp.reduce(logs) - np.log(len(x)) - log_evidence) < 4 * error


def test_mass_away_from_the_mode_is_found(key):
    """ln σ ~ N(0, .3²), 30 x ~ N(0, σ²): densest at ln σ = −30 × .3², 9 standard deviations off."""

    def funnel(x):
        return norm.logpdf(x[0], 0, 0.3) + jnp.sum(norm.logpdf(x[1:], 0, jnp.exp(x[0])))

    found, _ = population(funnel, 31, key)
    x = found.draws(4096, np.random.default_rng(0))
    assert abs(x[:, 0].mean()) < 0.1
    assert abs(x[:, 0].std() - 0.3) < 0.06


def test_chains_that_share_a_start_agree_or_do_not():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(50, 64, 3))
    assert worst_rhat(good) < 1.01
    stuck = good + 2.0 * rng.normal(size=(NUM_GROUPS, 3))[GROUP]
    assert worst_rhat(stuck) > 1.5
    still = np.repeat(np.round(rng.normal(size=(50, 8, 3))[:1], 2), 50, axis=0)
    assert worst_rhat(np.repeat(still, 8, axis=1)) > 1e3


def test_covariances_of_many_draws_are_theirs_and_of_few_nearly_the_old():
    rng = np.random.default_rng(0)
    factor = np.array([[2.0, 0.0], [1.5, 0.1]])
    many = (rng.normal(size=(4000, 2)) @ factor.T)[:, None]
    root = covariance_factor(many, np.eye(2))
    np.testing.assert_allclose(root @ root.T, factor @ factor.T, rtol=0.15)
    same = covariance_factor(np.zeros((4, 8, 2)), factor)
    np.testing.assert_array_equal(same, factor)


def test_a_population_survives_a_file(key):
    found, _ = population(lambda x: jnp.sum(norm.logpdf(x, 3.0, 0.5)), 2, key, max_calls=12)
    again = Population.from_arrays(found.arrays())
    jax.tree.map(np.testing.assert_array_equal, again, found)


@pytest.mark.parametrize("held_out", [False, True])
def test_no_draw_is_used_twice_before_all_are_used(key, held_out):
    found, _ = population(lambda x: norm.logpdf(x[0]), 1, key, max_calls=12)
    pool = found.sites[0].held_out if held_out else found.sites[0].flat
    x = found.draws(len(np.unique(pool)), np.random.default_rng(0), held_out=held_out)
    assert len(x) == len(np.unique(pool))
    assert np.isin(x, pool).all()
