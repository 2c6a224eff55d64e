"""Local maxima of a density, climbed to from many starts at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.warmup.hmc import LogDensity

_MAX_ITERATIONS = 200
# Gradient norm, relative to its size at the start, at which a climb has arrived.
_TOLERANCE = 1e-5
# A dip of this many nats on the straight line between two ends makes them two modes.
_DIP = 1.0
_POINTS_BETWEEN = 32
# The starts are widened by this factor until the ends no longer spread.
_WIDEN = 2.0
_MAX_WIDENINGS = 12


class Ends(NamedTuple):
    """Where climbs ended, best first, and how many gradients they took."""

    x: Float[Array, "ends dim"]
    log_density: Float[Array, " ends"]
    gradient_evaluations: int


def climb(log_density: LogDensity, starts: Float[Array, "starts dim"]) -> Ends:
    """L-BFGS with a line search from each start; ends that are not finite are left out."""
    return _sorted(*_climber(log_density)(starts))


def spread_climbs(
    log_density: LogDensity, dim: int, dtype: np.dtype, num_starts: int, key: PRNGKeyArray
) -> tuple[Ends, np.ndarray]:
    """Climbs from normal starts, widened for as long as wider ones end further out.

    With the ends comes which of them are modes of their own (`separated`).
    """
    run = _climber(log_density)
    ends = Ends(jnp.zeros((0, dim), dtype), jnp.zeros(0, dtype), 0)
    separate = np.zeros(0, bool)
    centre, scale = np.zeros(dim), np.ones(dim)
    for widening in range(_MAX_WIDENINGS):
        noise = jax.random.normal(jax.random.fold_in(key, widening), (num_starts, dim), dtype)
        if widening == 0:
            noise = noise.at[0].set(0.0)
        starts = jnp.asarray(centre, dtype) + jnp.asarray(scale, dtype) * noise
        ends = _joined(ends, _sorted(*run(starts)))
        if len(ends.x) == 0:
            break
        separate = separated(log_density, ends)
        spread = np.std(np.asarray(ends.x)[separate], axis=0) if separate.sum() > 1 else 0.0
        centre = np.mean(np.asarray(ends.x)[separate], axis=0)
        wanted = np.maximum(_WIDEN * spread, 1.0)
        if np.all(wanted <= 1.1 * scale) and widening > 0:
            break
        scale = np.maximum(scale, wanted)
    return ends, separate


def separated(log_density: LogDensity, ends: Ends) -> np.ndarray:
    """Which ends are modes of their own: the best, and those beyond a dip from every other."""
    x = np.asarray(ends.x)
    share = jnp.linspace(0.0, 1.0, _POINTS_BETWEEN + 2)[1:-1].astype(ends.x.dtype)

    @jax.jit
    def lowest(a: Array, others: Array) -> Array:
        def between(b: Array) -> Array:
            points = a + share[:, None] * (b - a)
            return jnp.min(jax.vmap(log_density)(points))

        return jax.vmap(between)(others)

    found = np.zeros(len(x), bool)
    remaining = np.ones(len(x), bool)
    values = np.asarray(ends.log_density)
    while remaining.any():
        best = int(np.argmax(np.where(remaining, values, -np.inf)))
        found[best] = True
        dips = values - np.asarray(lowest(ends.x[best], ends.x))
        remaining &= ~(dips < _DIP)
        remaining[best] = False
    return found


def _climber(log_density: LogDensity) -> Callable[[Array], tuple[Array, Array, Array]]:
    def negative(x: Float[Array, " dim"]) -> Float[Array, ""]:
        return -log_density(x)

    optimizer = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(negative)

    def one(start: Float[Array, " dim"]) -> tuple[Array, Array, Array]:
        first = jnp.linalg.norm(jax.grad(negative)(start))

        def unfinished(carry: tuple) -> Array:
            _, _, norm, iteration = carry
            return (norm > _TOLERANCE * (1.0 + first)) & (iteration < _MAX_ITERATIONS)

        def step(carry: tuple) -> tuple:
            x, state, _, iteration = carry
            value, gradient = value_and_gradient(x, state=state)
            updates, state = optimizer.update(
                gradient, state, x, value=value, grad=gradient, value_fn=negative
            )
            return optax.apply_updates(x, updates), state, jnp.linalg.norm(gradient), iteration + 1

        carry = (start, optimizer.init(start), jnp.asarray(jnp.inf, start.dtype), 0)
        x, _, _, iteration = jax.lax.while_loop(unfinished, step, carry)
        return x, -negative(x), jnp.asarray(iteration)

    return jax.jit(jax.vmap(one))


def _sorted(x: Array, log_density: Array, iterations: Array) -> Ends:
    points, values = np.asarray(x), np.asarray(log_density)
    order = np.argsort(-np.where(np.isfinite(values), values, -np.inf))
    order = order[np.isfinite(values[order]) & np.isfinite(points[order]).all(axis=1)]
    # A line search takes about one gradient more than its step.
    return Ends(x[order], log_density[order], 2 * int(np.sum(iterations)))


def _joined(first: Ends, second: Ends) -> Ends:
    x = jnp.concatenate([first.x, second.x])
    values = jnp.concatenate([first.log_density, second.log_density])
    order = jnp.argsort(-values)
    return Ends(x[order], values[order], first.gradient_evaluations + second.gradient_evaluations)
