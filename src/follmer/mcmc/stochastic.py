"""Stochastic-gradient Hamiltonian dynamics (Chen et al. 2014, arXiv:1402.4102) on many chains.

For data too large to look at in every step. Nothing corrects for the steps' length or for the
batches' noise: the draws are approximate.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.targets import AbstractTarget
from follmer.tools.keys import KeyRows, as_keys
from follmer.tools.mesh import PATHS, over
from follmer.tools.programs import compiled


class Walkers(NamedTuple):
    """Where chains stand, and how fast they move."""

    x: Float[Array, "chains dim"]
    velocity: Float[Array, "chains dim"]
    undone: Int[Array, " chains"]  # steps that were not finite


def as_walkers(x: Float[Array, "chains dim"]) -> Walkers:
    """Walkers at rest."""
    return Walkers(x, jnp.zeros_like(x), jnp.zeros(len(x), jnp.int32))


@compiled
def advance(
    target: AbstractTarget,
    walkers: Walkers,
    key: PRNGKeyArray,
    first: Int[Array, ""],
    rate: Float[Array, " chains"],
    *,
    friction: float,
    temperature: float,
    batch_size: int,
    num_kept: int,
    thinning: int,
) -> tuple[Walkers, Float[Array, "chains kept dim"]]:
    """The walkers `num_kept` times `thinning` steps on, and every `thinning`-th place.

    v ← (1 − friction) v + rate ∇ln p + √(2 friction rate temperature) ξ, x ← x + v. All of a
    call see the same batches.
    """
    step = rate[:, None]

    def once(i: Array, walkers: Walkers) -> Walkers:
        batch_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
        batch = target.random_batch(batch_key, batch_size)
        gradient = jax.vmap(jax.grad(lambda x: target.log_density(x, batch)))(walkers.x)
        noise = jax.random.normal(noise_key, walkers.x.shape, walkers.x.dtype)
        velocity = (1.0 - friction) * walkers.velocity + step * gradient
        velocity = velocity + jnp.sqrt(2.0 * friction * temperature * step) * noise
        sound = jnp.isfinite(velocity).all(axis=1, keepdims=True)
        # A walker that cannot go on starts again from rest.
        velocity = jnp.where(sound, velocity, 0.0)
        return Walkers(walkers.x + velocity, velocity, walkers.undone + ~sound[:, 0])

    def keep(walkers: Walkers, row: Array) -> tuple[Walkers, Array]:
        start = first + row * thinning
        walkers = jax.lax.fori_loop(start, start + thinning, once, walkers)
        return walkers, walkers.x

    walkers, places = jax.lax.scan(keep, over(PATHS, walkers), jnp.arange(num_kept))
    return walkers, jnp.swapaxes(places, 0, 1)


@compiled
def batch_variance(
    target: AbstractTarget, x: Float[Array, "chains dim"], rows: KeyRows, batch_size: int
) -> Float[Array, " chains"]:
    """How much each chain's gradient differs from batch to batch: its variance, averaged."""

    def gradients(key: PRNGKeyArray) -> Float[Array, "chains dim"]:
        batch = target.random_batch(key, batch_size)
        return jax.vmap(jax.grad(lambda x: target.log_density(x, batch)))(x)

    return jax.lax.map(gradients, as_keys(rows)).var(axis=0, ddof=1).mean(axis=1)
