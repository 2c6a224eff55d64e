"""Hamiltonian Monte Carlo on many chains at once, on a target tempered towards a wide normal."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.targets import AbstractTarget
from follmer.tools.mesh import PATHS, over
from follmer.tools.programs import compiled

# Leapfrog steps of a move.
NUM_LEAPFROG = 10
# Moves of one call: so many are recorded.
MOVES_PER_CALL = 8
# Mean acceptance that the step size is steered to (Beskos et al. 2013, arXiv:1001.4460: .65 – .8).
_ACCEPTANCE = 0.8
# Step sizes are log-uniform over this factor: narrow places need short steps, wide ones long, and
# trajectories of one length would come back to where they began.
_SPREAD = 30.0
# A trajectory is refused where a gradient is this large, in units of the coordinates' own.
_LARGEST = 1e12


class Chains(NamedTuple):
    """Where chains stand, with the target's log density and gradient there, and their step size."""

    x: Float[Array, "chains dim"]
    log_density: Float[Array, " chains"]
    gradient: Float[Array, "chains dim"]
    step_size: Float[Array, ""]


def as_chains(
    target: AbstractTarget, x: np.ndarray, log_density: np.ndarray, gradient: np.ndarray
) -> Chains:
    """Chains at given places, with a first step size: in many dimensions steps are short."""
    parts, dtype = (x, log_density, gradient, target.dim**-0.25), target.dtype
    return Chains(*(jax.device_put(np.asarray(part, dtype)) for part in parts))


class Wide(NamedTuple):
    """The normal that a tempered target is mixed with: p^β N(mean, scale²)^(1−β)."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    inverse_temperature: Float[Array, ""]  # β; at 1 the normal does not matter

    def log_density(self, x: Float[Array, "*chains dim"]) -> Float[Array, "*chains"]:
        z = (x - self.mean) / self.scale
        return -0.5 * jnp.sum(z**2 + math.log(2 * math.pi) + 2 * jnp.log(self.scale), axis=-1)

    def mixed(
        self, x: Array, log_density: Array, gradient: Array
    ) -> tuple[Float[Array, " chains"], Float[Array, "chains dim"]]:
        """Log density and gradient of the tempered target."""
        beta = self.inverse_temperature
        pull = -(x - self.mean) / self.scale**2
        # 0 · ∞ where the target has no density is none either.
        value = jnp.where(beta > 0, beta * log_density, 0.0)
        slope = jnp.where(beta > 0, beta * gradient, 0.0)
        return value + (1.0 - beta) * self.log_density(x), slope + (1.0 - beta) * pull


class Moved(NamedTuple):
    """Chains after the moves of one call; all places on the way, and gradients there."""

    chains: Chains
    places: Float[Array, "moves chains dim"]
    gradients: Float[Array, "moves chains dim"]
    acceptance: Float[Array, ""]


@compiled
def advance(
    target: AbstractTarget,
    chains: Chains,
    wide: Wide,
    factor: Float[Array, "dim dim"],
    key: PRNGKeyArray,
    call: Int[Array | np.ndarray, ""],
) -> Moved:
    """`MOVES_PER_CALL` moves of all chains that leave the tempered target as it is.

    They are made in coordinates stretched by `factor`, in each call with other random numbers.
    """

    def body(chains: Chains, key: PRNGKeyArray) -> tuple[Chains, tuple[Array, Array, Array]]:
        chains, acceptance = move(value_and_gradient, chains, wide, factor, key)
        return chains, (chains.x, chains.gradient, acceptance)

    value_and_gradient = jax.vmap(jax.value_and_grad(target.log_density))
    keys = jax.random.split(jax.random.fold_in(key, call), MOVES_PER_CALL)
    chains, (places, gradients, acceptance) = jax.lax.scan(body, over(PATHS, chains), keys)
    return Moved(chains, places, gradients, jnp.mean(acceptance))


def move(
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    chains: Chains,
    wide: Wide,
    factor: Float[Array, "dim dim"],
    key: PRNGKeyArray,
) -> tuple[Chains, Float[Array, ""]]:
    """One trajectory of every chain, taken or refused, and the mean acceptance.

    The step size adapts after the move, so that the move itself is exact.
    """
    momentum_key, step_key, accept_key = jax.random.split(key, 3)
    start, _, _, step_size = chains
    momentum = jax.random.normal(momentum_key, start.shape, start.dtype)
    uniform = jax.random.uniform(step_key, (len(start), 1), start.dtype)
    step = step_size * jnp.exp(-math.log(_SPREAD) * uniform)

    def leapfrog(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, momentum, log_density, gradient = carry
        slope = wide.mixed(x, log_density, gradient)[1]
        momentum = momentum + 0.5 * step * (slope @ factor)
        x = x + step * (momentum @ factor.T)
        log_density, gradient = value_and_gradient(x)
        slope = wide.mixed(x, log_density, gradient)[1]
        return x, momentum + 0.5 * step * (slope @ factor), log_density, gradient

    begin = (start, momentum, chains.log_density, chains.gradient)
    x, end_momentum, log_density, gradient = jax.lax.fori_loop(0, NUM_LEAPFROG, leapfrog, begin)
    before = wide.mixed(start, chains.log_density, chains.gradient)[0]
    after = wide.mixed(x, log_density, gradient)[0]
    log_ratio = after - before + 0.5 * jnp.sum(momentum**2 - end_momentum**2, axis=1)
    # A trajectory into a region without a density, or a slope, is refused.
    sound = jnp.isfinite(log_ratio) & (jnp.max(jnp.abs(gradient), axis=1) < _LARGEST)
    log_ratio = jnp.where(sound, log_ratio, -jnp.inf)
    taken = jnp.log(jax.random.uniform(accept_key, (len(x),), x.dtype)) < log_ratio
    acceptance = jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))
    moved = Chains(
        jnp.where(taken[:, None], x, start),
        jnp.where(taken, log_density, chains.log_density),
        jnp.where(taken[:, None], gradient, chains.gradient),
        step_size * jnp.exp(acceptance - _ACCEPTANCE),
    )
    return moved, acceptance
