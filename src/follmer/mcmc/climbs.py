"""Local maxima of a density, climbed to from many starts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.mcmc.hmc import LogDensity
from follmer.tools.host import generator

_MAX_ITERATIONS = 200
# Gradient norm, relative to its size at the start, at which a climb has arrived.
_TOLERANCE = 1e-5
# Nats gained in a step, below which a climb has arrived too.
_GAIN = 1e-6
# A dip of this many nats on the straight line between two ends makes them two modes.
_DIP = 1.0
_POINTS_BETWEEN = 32
_LINES_AT_ONCE = 32
# The starts are widened by this factor until the ends no longer spread.
_WIDEN = 2.0
_MAX_WIDENINGS = 12
_MAX_RENEWALS = 4
# A mode so many nats below the best, and more for each coordinate, would have to be thousands of
# times as wide along every one of them to matter.
_FAR_BELOW, _FAR_BELOW_EACH = 20.0, 10.0

ValueAndGradient = Callable[[Array | np.ndarray], tuple[Array, Array]]
# From one point and others to the lowest log density on the straight lines between them.
LowestBetween = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Ends(NamedTuple):
    """Where climbs ended, best first, and how many gradients they took."""

    x: Float[np.ndarray, "ends dim"]
    log_density: Float[np.ndarray, " ends"]
    gradient_evaluations: int


def climb(log_density: LogDensity, starts: Float[np.ndarray, "starts dim"]) -> Ends:
    """L-BFGS from each start; ends that are not finite are left out."""
    return ascend(jax.jit(jax.value_and_grad(log_density)), starts)


def spread_climbs(
    log_density: LogDensity, dim: int, dtype: Any, num_starts: int, key: PRNGKeyArray
) -> tuple[Ends, np.ndarray]:
    """Climbs from normal starts, widened for as long as wider ones end further out.

    With the ends comes which of them are modes of their own (`_separated`).
    """
    value_and_gradient = jax.jit(jax.value_and_grad(log_density))
    lowest = _lowest_between(log_density)
    rng = generator(key)
    ends = Ends(np.zeros((0, dim), dtype), np.zeros(0, dtype), 0)
    separate = np.zeros(0, bool)
    centre, scale = np.zeros(dim), np.ones(dim)
    for widening in range(_MAX_WIDENINGS):
        noise = rng.normal(size=(num_starts, dim))
        if widening == 0:
            noise[0] = 0.0
        starts = (centre + scale * noise).astype(dtype)
        ends = _joined(ends, ascend(value_and_gradient, starts))
        if len(ends.x) == 0:
            break
        ends, separate = _climbed_on(value_and_gradient, lowest, ends)
        spread = np.std(ends.x[separate], axis=0) if separate.sum() > 1 else 0.0
        centre = np.mean(ends.x[separate], axis=0)
        wanted = np.maximum(_WIDEN * spread, 1.0)
        if np.all(wanted <= 1.1 * scale) and widening > 0:
            break
        scale = np.maximum(scale, wanted)
    return ends, separate


def _climbed_on(
    value_and_gradient: ValueAndGradient, lowest: LowestBetween, ends: Ends
) -> tuple[Ends, np.ndarray]:
    """Ends that are modes of their own, after those that stopped short went on.

    A climb from where the density is steep has arrived, by its own measure, where others would go
    on; a new one from its end has a finer measure.
    """
    separate = _worthwhile(ends, _separated(lowest, ends))
    for _ in range(_MAX_RENEWALS):
        before = separate.sum()
        if before == 1:
            break
        others = Ends(ends.x[~separate], ends.log_density[~separate], ends.gradient_evaluations)
        ends = _joined(others, ascend(value_and_gradient, ends.x[separate]))
        separate = _worthwhile(ends, _separated(lowest, ends))
        if separate.sum() == before:
            break
    return ends, separate


def _worthwhile(ends: Ends, separate: np.ndarray) -> np.ndarray:
    """The modes among them that can hold any mass beside the best, however wide they are."""
    values = ends.log_density.astype(float)
    return separate & (values > values.max() - _FAR_BELOW - _FAR_BELOW_EACH * ends.x.shape[1])


def _separated(lowest: LowestBetween, ends: Ends) -> np.ndarray:
    """Which ends are modes of their own: the best, and those beyond a dip from every other."""
    found = np.zeros(len(ends.x), bool)
    remaining = np.ones(len(ends.x), bool)
    values = ends.log_density
    while remaining.any():
        best = int(np.argmax(np.where(remaining, values, -np.inf)))
        found[best] = True
        dips = values - lowest(ends.x[best], ends.x)
        remaining &= ~(dips < _DIP)
        remaining[best] = False
    return found


def unvisited(
    log_density: LogDensity,
    modes: Float[np.ndarray, "modes dim"],
    draws: Float[np.ndarray, "draws dim"],
) -> np.ndarray:
    """Which modes are beyond a dip from all draws near them, in units of the draws' spread."""
    lowest = _lowest_between(log_density)
    values = jax.jit(jax.vmap(log_density))
    spread = draws.std(axis=0) + np.finfo(draws.dtype).tiny

    def is_beyond(mode: np.ndarray, at_mode: np.ndarray) -> bool:
        distances = np.linalg.norm((draws - mode) / spread, axis=1)
        near = draws[np.argsort(distances)[:_LINES_AT_ONCE]]
        dips = np.minimum(at_mode, np.asarray(values(near))) - lowest(mode, near)
        return not (dips < _DIP).any()

    return np.array([is_beyond(*one) for one in zip(modes, np.asarray(values(modes)), strict=True)])


def _lowest_between(log_density: LogDensity) -> LowestBetween:
    """Compiled once, whatever the number of others."""
    share = np.linspace(0.0, 1.0, _POINTS_BETWEEN + 2)[1:-1, None]

    @jax.jit
    def some(a: Array, others: Array) -> Array:
        def between(b: Array) -> Array:
            return jnp.min(jax.vmap(log_density)(a + jnp.asarray(share, a.dtype) * (b - a)))

        return jax.vmap(between)(others)

    def lowest(a: np.ndarray, others: np.ndarray) -> np.ndarray:
        missing = -len(others) % _LINES_AT_ONCE
        blocks = np.pad(others, ((0, missing), (0, 0)), "edge")
        blocks = blocks.reshape(-1, _LINES_AT_ONCE, others.shape[1])
        return np.concatenate([np.asarray(some(a, block)) for block in blocks])[: len(others)]

    return lowest


def ascend(value_and_gradient: ValueAndGradient, starts: Float[np.ndarray, "starts dim"]) -> Ends:
    """`climb`, given the log density and its gradient in one function."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    def one(start: Float[np.ndarray, " dim"]) -> tuple[np.ndarray, float, int]:
        first, slope = (np.asarray(part, float) for part in value_and_gradient(start))
        # A line search backs off from what is not finite as from a steep rise.
        beyond = -float(first) + 10.0 * (1.0 + abs(float(first)))

        def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = (
                np.asarray(part, float) for part in value_and_gradient(x.astype(start.dtype))
            )
            if np.isfinite(value) and np.isfinite(gradient).all():
                return -float(value), -gradient
            return beyond, np.zeros(len(x))

        if not (np.isfinite(first) and np.isfinite(slope).all()):
            return start, -np.inf, 1
        result = minimize(
            negative,
            start.astype(float),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": _MAX_ITERATIONS,
                "gtol": _TOLERANCE * (1.0 + float(np.linalg.norm(slope))),
                "ftol": _GAIN / (1.0 + abs(float(first))),
            },
        )
        return result.x, -float(result.fun), 1 + result.nfev

    # L-BFGS's own products are far too small for threads: handing them out takes most of the time.
    with threadpool_limits(1, "blas"):
        found = [one(start) for start in starts]
    x, values, evaluations = (np.array(column) for column in zip(*found, strict=True))
    sound = np.isfinite(values) & np.isfinite(x).all(axis=1)
    dtype = starts.dtype
    return _sorted(x[sound].astype(dtype), values[sound].astype(dtype), int(evaluations.sum()))


def _joined(first: Ends, second: Ends) -> Ends:
    return _sorted(
        np.concatenate([first.x, second.x]),
        np.concatenate([first.log_density, second.log_density]),
        first.gradient_evaluations + second.gradient_evaluations,
    )


def _sorted(x: np.ndarray, values: np.ndarray, gradient_evaluations: int) -> Ends:
    order = np.argsort(-values)
    return Ends(x[order], values[order], gradient_evaluations)
