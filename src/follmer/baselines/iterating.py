"""A step repeated on the device, in calls of about half a second; its records kept on the host."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from follmer.errors import NonFiniteError
from follmer.tools.progress import Bar, Pace

# Numbers that one call may bring back, and records.
_MAX_NUMBERS = 2**22
_MAX_RECORDS = 1024

# From (state, iteration, data) to the next state and a record of it, a tree of arrays.
Step = Callable[[PyTree, Int[Array, ""], PyTree], tuple[PyTree, PyTree]]


def iterate(
    step: Step,
    state: PyTree,
    data: PyTree,
    *,
    num_records: int,
    burn_in: int = 0,
    thinning: int = 1,
    name: str,
    hint: str,
    progress: bool,
) -> tuple[PyTree, PyTree]:
    """The last state, and the records of every `thinning`-th iteration after the burn-in.

    Raises `NonFiniteError` with that hint at the first record that is not finite.
    """
    empty = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype),
        jax.eval_shape(step, state, jnp.zeros((), jnp.int32), data)[1],
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(empty))
    capacity = int(np.clip(_MAX_NUMBERS // size, 1, _MAX_RECORDS))

    @jax.jit
    def advance(
        state: PyTree, data: PyTree, start: Array, count: Array, every: Array
    ) -> tuple[PyTree, PyTree]:
        def keep(row: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            def once(i: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
                return step(carry[0], start + row * every + i, data)

            state, records = carry
            state, record = jax.lax.fori_loop(0, every, once, (state, empty))
            return state, jax.tree.map(lambda rows, new: rows.at[row].set(new), records, record)

        records = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), empty)
        return jax.lax.fori_loop(0, count, keep, (state, records))

    def run(state: PyTree, start: int, total: int, every: int, bar: Bar) -> tuple[PyTree, list]:
        pace, done, kept = Pace(), 0, []
        while done < total:
            count = min(pace.count, capacity, total - done)
            began = time.perf_counter()
            first = start + done * every
            state, rows = advance(state, data, first, count, every)
            # A copy, so that the rest of the buffer is freed.
            kept.append(jax.tree.map(lambda leaf, n=count: np.asarray(leaf)[:n].copy(), rows))
            pace.took(count, time.perf_counter() - began)
            _check(kept[-1], first, every, name, hint)
            done += count
            bar.advance(count * every)
        return state, kept

    with Bar(burn_in + num_records * thinning, visible=progress, name=name) as bar:
        # Looked at in every iteration, then forgotten.
        state, _ = run(state, 0, burn_in, 1, bar)
        state, kept = run(state, burn_in, num_records, thinning, bar)
    return state, jax.tree.map(lambda *parts: np.concatenate(parts), *kept)


def _check(records: PyTree, first: int, every: int, name: str, hint: str) -> None:
    for leaf in jax.tree.leaves(records):
        sound = np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1)
        if not sound.all():
            iteration = first + every * (int(np.argmin(sound)) + 1)
            raise NonFiniteError(
                f"{name} is no longer finite by iteration {iteration}.",
                cause="the steps are too large for the density's curvature, or the density is not "
                "finite there",
                hint=f"{hint}; target.check(key=…)",
            )
