"""Transition kernels of the controlled diffusion, in units of the reference's own step.

The reference steps as N(x, γΔt I). A kernel N(x + √(γΔt) shift, γΔt scale²) is told by its `Move`:
shift and scale are what an exact weight needs, and Euler–Maruyama is scale = 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Drift = Callable[[Float[Array, ""], Float[Array, " dim"]], Float[Array, " dim"]]


class Move(NamedTuple):
    """One step's Gaussian, relative to the reference's."""

    shift: Float[Array, " dim"]
    scale: Float[Array, "#dim"]


Step = Callable[
    [Drift, float, Float[Array, ""], Float[Array, ""], Float[Array, " dim"]],
    Move,
]


def euler_maruyama(
    drift: Drift,
    gamma: float,
    t: Float[Array, ""],
    dt: Float[Array, ""],
    x: Float[Array, " dim"],
) -> Move:
    """x + u(t, x) Δt + √(γΔt) ε."""
    return Move(shift=drift(t, x) * jnp.sqrt(dt / gamma), scale=jnp.ones((1,), x.dtype))
