"""Microcanonical Langevin chains on a Gaussian, and where the density is not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.mcmc.microcanonical import Dynamics, advance, as_particles

SD = np.array([0.5, 0.7, 1.0, 1.0, 1.4, 2.0])


def gaussian(x):
    return -0.5 * jnp.sum((x / SD) ** 2)


@pytest.fixture(scope="module")
def chains():
    target = follmer.Target(gaussian, like=jnp.zeros(6))
    starts = jnp.asarray(SD * np.random.default_rng(0).normal(size=(32, 6)), jnp.float32)
    particles = as_particles(target, starts, jax.random.key(0))
    dynamics = Dynamics(jnp.asarray(0.5 * 6**0.5), jnp.asarray(1e-3))
    key = jax.random.key(1)
    particles, _ = advance(
        target, particles, dynamics, key, jnp.asarray(0), num_kept=20, thinning=25
    )
    return advance(target, particles, dynamics, key, jnp.asarray(500), num_kept=200, thinning=25)


def test_moments_of_a_gaussian(chains):
    draws = np.asarray(chains[1], float).reshape(-1, 6)
    # 6400 draws, of which one in twenty counts: sd of a mean .056 SD, of a variance 8 %.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) / SD), 4 * 0.056)
    np.testing.assert_allclose(draws.var(axis=0) / SD**2, 1.0, atol=4 * 0.08)
    # All directions together, with 6 times as many: the steps' own bias shows at 10 % and more.
    assert np.mean(draws.var(axis=0) / SD**2) == pytest.approx(1.0, abs=0.1)


def test_directions_keep_their_length(chains):
    np.testing.assert_allclose(np.linalg.norm(chains[0].direction, axis=1), 1.0, rtol=1e-5)


def test_a_step_that_is_not_finite_is_undone_and_counted():
    def half_line(x):
        return jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), jnp.nan)

    target = follmer.Target(half_line, like=jnp.zeros(3))
    starts = jnp.asarray(np.abs(np.random.default_rng(0).normal(size=(4, 3))), jnp.float32)
    particles = as_particles(target, starts, jax.random.key(0))
    dynamics = Dynamics(jnp.asarray(1.0), jnp.asarray(0.1))
    particles, places = advance(
        target, particles, dynamics, jax.random.key(1), jnp.asarray(0), num_kept=20, thinning=25
    )
    assert np.all(np.asarray(places)[:, :, 0] > 0)
    assert np.isfinite(particles.log_density).all()
    assert int(particles.undone.sum()) > 0
