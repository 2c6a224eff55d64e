"""Hamiltonian Monte Carlo on many particles at once, with a spread of step sizes."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

NUM_LEAPFROG = 16
# Mean acceptance that the step size is steered to.
_ACCEPTANCE = 0.8
# Step sizes are log-uniform over this factor: narrow places need short steps, wide ones long.
_SPREAD = 100.0

LogDensity = Callable[[Float[Array, " dim"]], Float[Array, ""]]


class Moved(NamedTuple):
    """Particles after some moves, the step size found and the mean acceptance of the last move."""

    particles: Float[Array, "particles dim"]
    step_size: Float[Array, ""]
    acceptance: Float[Array, ""]


def move(
    log_density: LogDensity,
    particles: Float[Array, "particles dim"],
    factor: Float[Array, "dim dim"],
    step_size: Float[Array, ""],
    num_moves: int,
    key: PRNGKeyArray,
) -> Moved:
    """Moves that leave the density invariant, in coordinates stretched by `factor`."""
    value_and_gradient = jax.vmap(jax.value_and_grad(log_density))

    def body(carry: tuple[Array, Array, Array], key: PRNGKeyArray) -> tuple[tuple, None]:
        x, step, _ = carry
        x, acceptance = _transition(value_and_gradient, x, factor, step, key)
        # Adapting between moves of an ensemble keeps each move exact for a fixed step.
        step = step * jnp.exp(acceptance - _ACCEPTANCE)
        return (x, step, acceptance), None

    start = (particles, step_size, jnp.zeros_like(step_size))
    return Moved(*jax.lax.scan(body, start, jax.random.split(key, num_moves))[0])


def _transition(
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    x: Float[Array, "particles dim"],
    factor: Float[Array, "dim dim"],
    step_size: Float[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Float[Array, "particles dim"], Float[Array, ""]]:
    momentum_key, step_key, accept_key = jax.random.split(key, 3)
    momentum = jax.random.normal(momentum_key, x.shape, x.dtype)
    uniform = jax.random.uniform(step_key, (len(x), 1), x.dtype)
    step = step_size * jnp.exp(-np.log(_SPREAD) * uniform)

    def leapfrog(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, momentum, _value, gradient = carry
        momentum = momentum + 0.5 * step * (gradient @ factor)
        x = x + step * (momentum @ factor.T)
        value, gradient = value_and_gradient(x)
        return x, momentum + 0.5 * step * (gradient @ factor), value, gradient

    value, gradient = value_and_gradient(x)
    end, end_momentum, end_value, _ = jax.lax.fori_loop(
        0, NUM_LEAPFROG, leapfrog, (x, momentum, value, gradient)
    )
    log_ratio = end_value - value + 0.5 * jnp.sum(momentum**2 - end_momentum**2, axis=1)
    # A trajectory into a region without a density is refused.
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    accepted = jnp.log(jax.random.uniform(accept_key, (len(x),), x.dtype)) < log_ratio
    acceptance = jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))
    return jnp.where(accepted[:, None], end, x), acceptance
