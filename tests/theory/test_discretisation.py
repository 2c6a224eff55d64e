"""Euler–Maruyama with the exact drift: how far its end point is from the target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import GaussianDrift
from follmer.objectives import Problem
from follmer.paths import Diffusion, euler_maruyama, grid_times, uniform


def terminal_moments(drift, gamma, num_steps, grid=uniform):
    """Mean and variance at time 1 in one dimension, where every step is affine in x."""
    times = grid_times(grid, num_steps)
    starts, lengths = times[:-1], np.diff(times)

    def affine(t, dt):
        shifts = [euler_maruyama(drift, gamma, t, dt, jnp.array([x])).shift[0] for x in (0.0, 1.0)]
        return shifts[0], shifts[1] - shifts[0]

    offsets, slopes = jax.vmap(affine)(jnp.asarray(starts), jnp.asarray(lengths))
    mean, variance = 0.0, 0.0
    for dt, offset, slope in zip(lengths, np.asarray(offsets), np.asarray(slopes), strict=True):
        unit = np.sqrt(gamma * dt)
        growth = 1 + unit * slope
        mean, variance = growth * mean + unit * offset, growth**2 * variance + unit**2
    return mean, variance


# The table of docs/notes on why a plain run misses the posterior: r = γ/σ², terminal variance/σ².
TABLE = {
    (1e-4, 20): 0.003,
    (1e-4, 100): 0.016,
    (1e-4, 1000): 0.14,
    (0.01, 20): 0.25,
    (0.01, 100): 0.64,
    (0.01, 1000): 0.95,
    (1, 20): 1.0,
    (25, 20): 1.83,
    (25, 100): 1.13,
    (25, 1000): 1.01,
    (400, 20): 20,
    (400, 100): 4.3,
    (400, 1000): 1.23,
}


@pytest.mark.usefixtures("x64")
def test_terminal_variance_with_the_exact_drift_is_as_derived():
    for (ratio, num_steps), expected in TABLE.items():
        drift = GaussianDrift(jnp.zeros(1), jnp.eye(1) / ratio, gamma=1.0)
        _, variance = terminal_moments(drift, 1.0, num_steps)
        digits = 1 if expected >= 1.5 else 2 if expected > 0.01 else 3
        rounding = 10.0**-digits if expected < 10 else 1.0
        assert abs(variance * ratio - expected) < rounding, (ratio, num_steps)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variance", [0.1, 4.0])
def test_terminal_error_falls_at_the_rate_of_the_corollary(variance):
    """KL(π‖π̂) = O(Δt): each halving of the step at least halves it, up to the constant."""
    drift = GaussianDrift(jnp.array([0.7]), variance * jnp.eye(1), gamma=1.0)
    kls = []
    for num_steps in (20, 40, 80, 160, 320):
        mean, found = terminal_moments(drift, 1.0, num_steps)
        ratio = variance / found
        kls.append(0.5 * (ratio - 1 - np.log(ratio) + (mean - 0.7) ** 2 / found))
    slopes = np.diff(np.log(kls)) / np.log(2)
    assert (slopes < -0.95).all()
    assert kls[-1] < 0.01


def test_simulated_paths_have_the_predicted_variance():
    drift = GaussianDrift(jnp.zeros(1), jnp.eye(1) / 25, gamma=1.0)
    diffusion = Diffusion(1, 1.0, grid_times(uniform, 20), jnp.float32)
    case = Problem(
        diffusion,
        log_density=lambda x: -0.5 * jnp.sum(x**2),
        log_factor=lambda x: -0.5 * jnp.sum(x**2) - diffusion.log_reference(x),
        num_paths=20_000,
    )
    ends = np.asarray(case.simulate(drift, jax.random.key(0)).end)
    _, variance = terminal_moments(drift, 1.0, 20)
    # A sample variance of n Gaussians has relative se √(2/n).
    assert abs(ends.var() / variance - 1) < 4.5 * np.sqrt(2 / 20_000)
