"""Tempered sequential Monte Carlo from a wide normal: rough draws that cover every mode."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.mcmc import hmc
from follmer.mcmc.resampling import largest_power, systematic

# A temperature is lowered until this share of the particles is effective.
_EFFECTIVE = 0.7
_MOVES_PER_TEMPERATURE = 4
_LAST_MOVES = 100
_MAX_TEMPERATURES = 100


class Tempered(NamedTuple):
    """Rough, equally weighted draws. `log_evidence` is SMC's own estimate."""

    particles: Float[Array, "particles dim"]
    log_evidence: Float[Array, ""]
    temperatures: Int[Array, ""]
    reached: Float[Array, ""]  # the inverse temperature reached: 1 is the target
    acceptance: Float[Array, ""]


class _State(NamedTuple):
    particles: Float[Array, "particles dim"]
    inverse: Float[Array, ""]
    step_size: Float[Array, ""]
    log_evidence: Float[Array, ""]
    temperatures: Int[Array, ""]
    acceptance: Float[Array, ""]
    key: PRNGKeyArray


def temper(
    log_density: hmc.LogDensity,
    mean: Float[Array, " dim"],
    scale: Float[Array, " dim"],
    num_particles: int,
    key: PRNGKeyArray,
) -> Tempered:
    """Particles from N(mean, scale²) to the target, through wide^(1−β) target^β, β from 0 to 1."""
    dtype = mean.dtype
    start_key, loop_key, last_key = jax.random.split(key, 3)

    def log_wide(x: Array) -> Array:
        z = (x - mean) / scale
        return -0.5 * jnp.sum(z**2 + np.log(2 * np.pi)) - jnp.sum(jnp.log(scale))

    def log_ratio(x: Array) -> Array:
        value = log_density(x) - log_wide(x)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def not_finished(state: _State) -> Array:
        return (state.inverse < 1.0) & (state.temperatures < _MAX_TEMPERATURES)

    def cool(state: _State) -> _State:
        resample_key, move_key, key = jax.random.split(state.key, 3)
        ratios = jax.vmap(log_ratio)(state.particles)
        step = largest_power(ratios, 1.0 - state.inverse, _EFFECTIVE)
        log_weights = step * ratios
        inverse = jnp.where(step >= 1.0 - state.inverse, 1.0, state.inverse + step)
        particles = state.particles[
            systematic(resample_key, jax.nn.softmax(log_weights), num_particles)
        ]
        moved = hmc.move(
            lambda x: inverse * log_density(x) + (1.0 - inverse) * log_wide(x),
            particles,
            _factor(particles),
            state.step_size,
            _MOVES_PER_TEMPERATURE,
            move_key,
        )
        gain = jax.nn.logsumexp(log_weights) - np.log(num_particles)
        return _State(
            moved.particles,
            inverse,
            moved.step_size,
            state.log_evidence + gain,
            state.temperatures + 1,
            moved.acceptance,
            key,
        )

    noise = jax.random.normal(start_key, (num_particles, len(mean)), dtype)
    zero = jnp.zeros((), dtype)
    start = _State(
        mean + scale * noise,
        zero,
        jnp.full((), 0.5, dtype),
        zero,
        jnp.zeros((), int),
        zero,
        loop_key,
    )
    state = jax.lax.while_loop(not_finished, cool, start)
    moved = hmc.move(
        log_density,
        state.particles,
        _factor(state.particles),
        state.step_size,
        _LAST_MOVES,
        last_key,
    )
    return Tempered(
        moved.particles, state.log_evidence, state.temperatures, state.inverse, moved.acceptance
    )


def _factor(particles: Float[Array, "particles dim"]) -> Float[Array, "dim dim"]:
    """A square root of the particles' covariance."""
    covariance = jnp.atleast_2d(jnp.cov(particles.T))
    jitter = 1e-6 * jnp.diag(jnp.diag(covariance)) + 1e-30 * jnp.eye(len(covariance))
    return jnp.linalg.cholesky(covariance + jitter)
