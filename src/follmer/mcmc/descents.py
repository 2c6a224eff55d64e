"""Many descents at once: the members of an ensemble, each from a start of its own."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.errors import NonFiniteError
from follmer.mcmc.groups import batch_share, by_group
from follmer.targets import AbstractTarget
from follmer.targets.density import Density
from follmer.tools.keys import normals
from follmer.tools.mesh import PATHS, over
from follmer.tools.programs import compiled
from follmer.tools.progress import Pace

# The sd of starts of biases and other vectors: small, yet off the saddle that a network has at 0.
_NARROW = 0.1
# Rounds in which starts that are not finite are drawn anew, each narrower than the last by this.
_ROUNDS, _NARROWER = 8, 0.5

# Members' places, and the optimiser's state of each.
_Descending = tuple[Float[Array, "members dim"], optax.OptState]


class Members(NamedTuple):
    """Places of an ensemble's members, and how many starts had to be replaced."""

    x: Float[Array, "members dim"]
    replaced: int


def start_widths(target: AbstractTarget) -> Float[np.ndarray, " dim"]:
    """The sd of a start of each coordinate: Glorot & Bengio (2010) for matrices, small for vectors.

    It is symmetric in inputs and outputs, so it needs no layout: the longest two axes are taken for
    them.
    """
    widths = np.full(target.dim, _NARROW)
    for leaf in target.space.leaves:
        if len(leaf.shape) > 1 and leaf.stop > leaf.start:
            ins, outs = sorted(leaf.shape)[-2:]
            window = (leaf.stop - leaf.start) / (ins * outs)
            widths[leaf.start : leaf.stop] = np.sqrt(2.0 / (window * (ins + outs)))
    return widths


def starts(target: AbstractTarget, count: int, key: PRNGKeyArray) -> Members:
    """Random starts at which the density and its gradient are finite."""
    widths = start_widths(target)
    density = Density(target)
    x = widths * normals(key, "starts", (count, target.dim))
    replaced = 0
    for attempt in range(1, _ROUNDS + 1):
        value, gradient = density(x.astype(target.dtype))
        bad = ~(np.isfinite(value) & np.isfinite(gradient).all(axis=1))
        if not bad.any():
            return Members(jax.device_put(x.astype(target.dtype)), replaced)
        replaced += int(bad.sum())
        fresh = normals(key, f"starts {attempt}", (count, target.dim))
        x[bad] = (_NARROWER**attempt * widths * fresh)[bad]
    raise NonFiniteError(
        f"the log density or its gradient is not finite at {bad.sum()} of {count} members' starts, "
        f"also after {_ROUNDS} rounds of narrower ones.",
        cause="x or y are of a size at which the network overflows, or the density is not defined "
        "near 0",
        hint="x and y scaled to a standard deviation of 1; target.check(key=…)",
    )


def descend(
    target: AbstractTarget,
    x: Float[Array, "members dim"],
    key: PRNGKeyArray,
    *,
    batch_size: int | None,
    num_iterations: int,
    learning_rate: float,
    advanced: Callable[[int], object] = lambda count: None,
) -> Float[Array, "members dim"]:
    """Where Adam leads each member, the rate decayed along a cosine; all see the same batches.

    A gradient that is not finite moves nothing. `advanced` is told of iterations that are done, a
    call of about half a second at a time.
    """
    rate = (learning_rate, num_iterations)
    members, pace, done = (x, jax.vmap(_adam(*rate).init)(x)), Pace(), 0
    operations = len(x) * batch_share(batch_size, target.num_data) * target.gradient_cost
    while done < num_iterations:
        count = min(pace.count, num_iterations - done)
        began = time.perf_counter()
        span = jnp.asarray([done, done + count], jnp.int32)

        def move(some: _Descending, name: str, span: Int[Array, " 2"] = span) -> _Descending:
            return _descended(target, some, key, span, rate, batch_size)

        members = jax.block_until_ready(by_group(move, members, operations))
        pace.took(count, time.perf_counter() - began)
        done += count
        advanced(count)
    return members[0]


@compiled
def _descended(
    target: AbstractTarget,
    start: _Descending,
    key: PRNGKeyArray,
    span: Int[Array, " 2"],
    rate: tuple[float, int],
    batch_size: int | None,
) -> _Descending:
    """The members and their optimiser's state after the iterations of a span."""
    adam = _adam(*rate)

    def body(i: Int[Array, ""], carry: _Descending) -> _Descending:
        x, state = carry
        batch = target.random_batch(jax.random.fold_in(key, i), batch_size)
        gradient = jax.vmap(jax.grad(lambda x: -target.log_density(x, batch)))(x)
        sound = jnp.isfinite(gradient).all(axis=1, keepdims=True)
        updates, state = jax.vmap(adam.update)(jnp.where(sound, gradient, 0.0), state, x)
        return x + jnp.where(sound, updates, 0.0), state

    return jax.lax.fori_loop(span[0], span[1], body, over(PATHS, start))


def _adam(learning_rate: float, num_iterations: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations))
