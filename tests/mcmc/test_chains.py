"""Moves that leave a target as it is; whether groups of chains agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target
from follmer.mcmc.chains import MOVES_PER_CALL, Wide, advance, as_chains, nested_rhat
from follmer.targets import Density

DIM = 2


def moved(target, x, wide, calls, factor=None):
    values, gradients = Density(target)(x)
    chains = as_chains(target, x, values, gradients)
    factor = jnp.eye(DIM) if factor is None else factor
    for key in jax.random.split(jax.random.key(3), calls):
        found = advance(target, chains, wide, factor, key, np.asarray(0))
        chains = found.chains
    return found


def wide(beta):
    return Wide(jnp.zeros(DIM), jnp.full(DIM, 3.0), jnp.asarray(beta))


@pytest.mark.parametrize("factor", [np.eye(DIM), np.array([[2.0, 0.0], [0.7, 0.5]])])
def test_moves_leave_the_target_as_it_is(factor):
    target = Target(lambda x: jnp.sum(norm.logpdf(x, 1.0)), like=jnp.zeros(DIM))
    x = 0.5 * np.random.default_rng(0).normal(size=(4096, DIM))
    found = moved(target, x, wide(1.0), 5, jnp.asarray(factor, jnp.float32))
    assert 0.5 < found.acceptance < 1.0
    places = np.asarray(found.chains.x)
    # 4 standard errors of a mean and a standard deviation of 4096 draws.
    np.testing.assert_allclose(places.mean(axis=0), 1.0, atol=4 / 64)
    np.testing.assert_allclose(places.std(axis=0), 1.0, atol=4 / 64 / np.sqrt(2))


def test_at_inverse_temperature_zero_the_normal_is_sampled():
    target = Target(lambda x: jnp.sum(norm.logpdf(x, 1.0)), like=jnp.zeros(DIM))
    x = np.random.default_rng(0).normal(size=(4096, DIM))
    places = np.asarray(moved(target, x, wide(0.0), 5).chains.x)
    np.testing.assert_allclose(places.std(axis=0), 3.0, atol=3 * 4 / 64 / np.sqrt(2))


def test_in_between_the_product_of_powers_is_sampled():
    """N(1, 1)^½ N(0, 9)^½ is normal with precision ½ + 1/18 and mean ½ / that."""
    target = Target(lambda x: jnp.sum(norm.logpdf(x, 1.0)), like=jnp.zeros(DIM))
    x = np.random.default_rng(0).normal(size=(4096, DIM))
    places = np.asarray(moved(target, x, wide(0.5), 5).chains.x)
    precision = 0.5 + 0.5 / 9.0
    sd = precision**-0.5
    np.testing.assert_allclose(places.mean(axis=0), 0.5 / precision, atol=4 * sd / 64)
    np.testing.assert_allclose(places.std(axis=0), sd, atol=4 * sd / 64 / np.sqrt(2))


def test_trajectories_into_nowhere_are_refused():
    target = Target(
        lambda x: jnp.where(x[0] > 0, jnp.sum(norm.logpdf(x)), jnp.nan), like=jnp.zeros(DIM)
    )
    x = np.abs(np.random.default_rng(0).normal(size=(1024, DIM)))
    found = moved(target, x, wide(1.0), 4)
    assert (np.asarray(found.chains.x)[:, 0] > 0).all()
    assert np.isfinite(found.chains.log_density).all()
    # A half-normal has mean √(2/π) and standard deviation √(1 − 2/π).
    error = 4 * np.sqrt((1 - 2 / np.pi) / 1024)
    assert abs(np.asarray(found.chains.x)[:, 0].mean() - np.sqrt(2 / np.pi)) < error


def test_every_place_on_the_way_is_told():
    target = Target(lambda x: jnp.sum(norm.logpdf(x)), like=jnp.zeros(DIM))
    found = moved(target, np.zeros((8, DIM)), wide(1.0), 1)
    assert found.places.shape == (MOVES_PER_CALL, 8, DIM)
    np.testing.assert_array_equal(found.places[-1], found.chains.x)
    np.testing.assert_allclose(found.gradients, -found.places, atol=1e-5)


def test_nested_rhat_is_one_for_chains_of_one_distribution():
    values = np.random.default_rng(0).normal(size=(8, 500, 20))
    # Between four groups of two chains: the variance of a mean is 1/1000.
    assert np.max(nested_rhat(values, 4)) < 1.005


def test_nested_rhat_sees_groups_apart_and_noise_hides_what_is_small():
    values = np.random.default_rng(0).normal(size=(4, 500, 1))
    values[2:] += 2.0
    # Group means 0 and 2 have variance 2, beside 1 inside.
    assert nested_rhat(values, 2)[0] == pytest.approx(3**0.5, rel=0.1)
    assert nested_rhat(values, 2, noise=99.0)[0] == pytest.approx(1.02**0.5, rel=0.01)


def test_groups_that_never_vary_agree():
    assert nested_rhat(np.zeros((4, 10, 1)), 2)[0] == 1.0
