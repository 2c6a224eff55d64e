"""Many paths at once, to be differentiated by the drift's parameters: what training runs.

All paths take a step together, so that a drift's layer is one product for all of them. In the
reverse pass each weight's gradient is formed once, from all steps (`deferred.py`). Long paths keep
only the ends of segments, and run each segment again on the way back: memory grows as √steps.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.paths.deferred import Deferred, deferring
from follmer.paths.diffusion import PATHS_AXIS, Diffusion, Path
from follmer.paths.steps import Drift, Move, step_kl, step_log_ratio, take_step
from follmer.tools.mesh import PATHS, over
from follmer.tools.normals import standard_normals

# What of a path is differentiated, beside its end: all; one of its two scores; or the log ratio
# with the drift's parameters, but not the state, stopped inside ln q (sticking the landing).
Differentiate = Literal["all", "kl", "log_ratio", "landing"]

# Steps from which a path is run in segments: to run them again takes a third more arithmetic.
_LONG = 64


class _Scored(NamedTuple):
    """What a step leaves behind, for all paths."""

    log_ratio: Float[Array, "*steps paths"]
    kl: Float[Array, "*steps paths"]
    states: Float[Array, "*steps paths dim"]
    increments: Float[Array, "*steps paths dim"]


def simulate_many(
    drift: Drift,
    diffusion: Diffusion,
    num_paths: int,
    key: PRNGKeyArray,
    differentiate: Differentiate = "all",
) -> Path:
    """So many paths from 0 to time 1, as one `Path` with a leading axis."""

    def moves(t: Array, dt: Array, x: Float[Array, "paths dim"]) -> Move:
        step = functools.partial(diffusion.step, drift, diffusion.gamma, t, dt)
        return jax.vmap(step, axis_name=PATHS_AXIS)(x)

    # 0, but not a constant: of one, XLA would work out the first step's products while compiling.
    zeros = jnp.zeros((num_paths, diffusion.dim), diffusion.dtype)
    start = over(PATHS, jax.lax.optimization_barrier(zeros))
    times = diffusion.starts, diffusion.lengths
    segment = _segment(Deferred(moves, times[0][0], times[1][0], start), diffusion, differentiate)
    if diffusion.num_steps < _LONG:
        end, scored = segment(diffusion.num_steps)(start, key, *times)
    else:
        end, scored = _in_segments(segment, start, key, *times)
    states, increments = (jnp.swapaxes(rows, 0, 1) for rows in (scored.states, scored.increments))
    return Path(end, jnp.sum(scored.log_ratio, 0), jnp.sum(scored.kl, 0), states, increments)


def _segment(
    moves: Deferred, diffusion: Diffusion, differentiate: Differentiate
) -> Callable[[int], Callable[..., tuple[Array, _Scored]]]:
    """For a number of steps: from (state, key, times, lengths) to the state after, and scores."""
    called = _landing(moves) if differentiate == "landing" else _plain(moves)

    def tapped(
        arrays: list[Array],
        taps: list[Array],
        x: Float[Array, "paths dim"],
        key: PRNGKeyArray,
        starts: Float[Array, " steps"],
        lengths: Float[Array, " steps"],
    ) -> Any:
        noise = standard_normals(key, (len(starts), *x.shape), x.dtype)

        def body(x: Float[Array, "paths dim"], inputs: Any) -> Any:
            t, dt, epsilon, taps = inputs
            move, scored_move, seen = called((arrays, taps, t, dt), x)
            after, scored = jax.vmap(
                functools.partial(_advance, diffusion, differentiate), (None, None, 0, 0, 0, 0)
            )(t, dt, move, scored_move, x, epsilon)
            return after, (scored, seen)

        end, (scored, seen) = jax.lax.scan(body, x, (starts, lengths, noise, taps))
        return (end, scored), seen

    return lambda num_steps: deferring(tapped, moves, num_steps)


def _advance(
    diffusion: Diffusion,
    differentiate: Differentiate,
    t: Float[Array, ""],
    dt: Float[Array, ""],
    move: Move,
    scored_move: Move,
    x: Float[Array, " dim"],
    epsilon: Float[Array, " dim"],
) -> tuple[Array, _Scored]:
    """One step of one path. What is not differentiated keeps nothing for the reverse pass."""
    increment = take_step(move, epsilon)
    after = diffusion.after(t, dt, x, increment)
    rest, ratio, kl = (x, increment), (scored_move, increment), scored_move
    if differentiate != "all":
        rest = jax.lax.stop_gradient(rest)
    if differentiate == "kl":
        ratio = jax.lax.stop_gradient(ratio)
    if differentiate in ("log_ratio", "landing"):
        kl = jax.lax.stop_gradient(kl)
    totals = diffusion.total(step_log_ratio(*ratio)), diffusion.total(step_kl(kl))
    return after, _Scored(*totals, *rest)


def _in_segments(
    segment: Callable[[int], Callable[..., tuple[Array, _Scored]]],
    start: Float[Array, "paths dim"],
    key: PRNGKeyArray,
    starts: Float[Array, " steps"],
    lengths: Float[Array, " steps"],
) -> tuple[Array, _Scored]:
    """√steps segments of √steps steps, and what is left over."""
    size = math.isqrt(len(starts))
    whole, left = divmod(len(starts), size)
    run, run_left = (jax.checkpoint(segment(number)) for number in (size, left))
    keys = jax.random.split(key, whole + 1)
    cut = whole * size
    tables = [rows[:cut].reshape(whole, size) for rows in (starts, lengths)]
    end, scored = jax.lax.scan(lambda x, inputs: run(x, *inputs), start, (keys[:-1], *tables))
    scored = jax.tree.map(lambda rows: rows.reshape(cut, *rows.shape[2:]), scored)
    if left == 0:
        return end, scored
    end, rest = run_left(end, keys[-1], starts[cut:], lengths[cut:])
    return end, jax.tree.map(lambda *parts: jnp.concatenate(parts), scored, rest)


# From (arrays, taps, t, dt) and the states to the moves that are made, those that are
# scored, and the inputs of the drift's products.
_Called = Callable[[PyTree, Float[Array, "paths dim"]], tuple[Move, Move, list[Array]]]


def _plain(moves: Deferred) -> _Called:
    def called(given: PyTree, x: Float[Array, "paths dim"]) -> tuple[Move, Move, list[Array]]:
        move, inputs = moves(*given, x)
        return move, move, inputs

    return called


def _landing(moves: Deferred) -> _Called:
    """The moves, and the same again as functions of the state alone, for one evaluation."""

    def evaluated(given: PyTree, x: Float[Array, "paths dim"]) -> tuple[Move, list[Array]]:
        return moves(*given, x)

    @jax.custom_vjp
    def called(given: PyTree, x: Float[Array, "paths dim"]) -> tuple[Move, Move, list[Array]]:
        move, inputs = evaluated(given, x)
        return move, move, inputs

    def forward(given: PyTree, x: Float[Array, "paths dim"]) -> tuple[Any, Any]:
        move, pull_back, inputs = jax.vjp(evaluated, given, x, has_aux=True)
        return (move, move, inputs), pull_back

    def backward(pull_back: Any, cotangent: Any) -> tuple[PyTree, Array]:
        made, scored, _ = cotangent
        return pull_back(made)[0], pull_back(jax.tree.map(jnp.add, made, scored))[1]

    called.defvjp(forward, backward)
    return called
