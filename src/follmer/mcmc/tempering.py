"""Tempered sequential Monte Carlo from a wide normal: draws that cover modes too many to count."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.mcmc.chains import (
    MOVES_PER_CALL,
    NUM_LEAPFROG,
    Chains,
    Wide,
    advance,
    as_chains,
    covariance_factor,
)
from follmer.mcmc.resampling import largest_power, systematic
from follmer.targets import Density
from follmer.tools.keys import generator, named_key
from follmer.tools.progress import NEVER

# A temperature is lowered until this share of the particles is effective.
_EFFECTIVE = 0.7
_MAX_TEMPERATURES = 200
# Calls of some moves each at the target itself.
_LAST_CALLS = 6


class Tempered(NamedTuple):
    """Rough, equally weighted draws, with the gradients there; SMC's own estimate of ln Z."""

    particles: Float[np.ndarray, "particles dim"]
    gradients: Float[np.ndarray, "particles dim"]
    log_evidence: float
    temperatures: int
    reached: float  # the inverse temperature reached: 1 is the target


def temper(
    density: Density,
    mean: Float[np.ndarray, " dim"],
    scale: Float[np.ndarray, " dim"],
    num_particles: int,
    key: PRNGKeyArray,
    tell: Callable[[str], object] = lambda line: None,
    stop: Callable[[], bool] = NEVER,
) -> Tempered:
    """Particles from N(mean, scale²) to the target, through wide^(1−β) target^β, β from 0 to 1."""
    target, dtype = density.target, density.dtype
    rng, move_key = generator(key, "particles"), named_key(key, "moves")
    x = mean + scale * rng.standard_normal((num_particles, len(mean)))
    values, gradients = density(x)
    chains = as_chains(target, x, values, gradients)
    parts = (np.asarray(part, dtype) for part in (mean, scale, 0.0))
    wide = Wide(*jax.device_put(tuple(parts)))
    beta, log_evidence, calls = 0.0, 0.0, 0

    def moved(chains: Chains, beta: float) -> Chains:
        factor = covariance_factor(np.asarray(chains.x, float)[None], np.diag(scale))
        tempered = wide._replace(inverse_temperature=jax.device_put(np.asarray(beta, dtype)))
        density.gradient_evaluations += num_particles * MOVES_PER_CALL * NUM_LEAPFROG
        stretch = jax.device_put(np.asarray(factor, dtype))
        return advance(target, chains, tempered, stretch, move_key, np.asarray(calls)).chains

    while beta < 1.0 and calls < _MAX_TEMPERATURES and not stop():
        z = (np.asarray(chains.x, float) - mean) / scale
        log_wide = -0.5 * np.sum(z**2 + np.log(2 * np.pi) + 2 * np.log(scale), axis=1)
        ratios = np.asarray(chains.log_density, float) - log_wide
        ratios = np.where(np.isfinite(ratios), ratios, -np.inf)
        power = largest_power(ratios, 1.0 - beta, _EFFECTIVE)
        beta = 1.0 if power >= 1.0 - beta else beta + power
        log_evidence += np.logaddexp.reduce(power * ratios) - np.log(num_particles)
        rows = systematic(rng, np.exp(power * (ratios - ratios.max())), num_particles)
        x, values, gradients = (np.asarray(part)[rows] for part in chains[:3])
        chains = Chains(*jax.device_put((x, values, gradients, chains.step_size)))
        calls += 1
        tell(f"tempering: {beta:.0%} of the way")
        chains = moved(chains, beta)
    temperatures = calls
    for _ in range(_LAST_CALLS):
        calls += 1
        chains = moved(chains, beta)
    places, slopes = np.asarray(chains.x, float), np.asarray(chains.gradient, float)
    return Tempered(places, slopes, float(log_evidence), temperatures, beta)
