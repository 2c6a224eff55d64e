"""Climbs to the modes of a density, many at once: L-BFGS in lockstep on the host."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from follmer.targets import Density

# Steps of a climb, and places that its curvature is read from.
_MAX_STEPS, _MEMORY = 200, 8
# Nats gained in a step, and gradient norm, below which it has arrived.
_GAIN, _FLAT = 1e-5, 1e-8
# Steps in a row without a gain after which a climb has arrived.
_MAX_STRIKES = 6
# A step that does not gain this share of what its slope promises is shortened by this factor.
_ARMIJO, _SHORTER, _MAX_SHORTENINGS = 1e-4, 0.25, 20
# A dip of this many nats on the straight line between two ends makes them two modes.
_DIP = 1.0
_POINTS_BETWEEN = 16


class Ends(NamedTuple):
    """Where climbs ended, best first."""

    x: Float[np.ndarray, "ends dim"]
    log_density: Float[np.ndarray, " ends"]


# Log densities and gradients at rows of points.
Points = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@np.errstate(over="ignore", invalid="ignore")
def climb(
    density: Points,
    starts: Float[np.ndarray, "starts dim"],
    scale: Float[np.ndarray, " dim"] | float = 1.0,
) -> Ends:
    """L-BFGS from each start, all in lockstep; those that meet no finite density are left out.

    In units of `scale`, the coordinates' widths, a badly scaled density is climbed more surely.
    """
    ends = _climb(lambda z: _scaled(density, z, scale), np.asarray(starts, float) / scale)
    return Ends(ends.x * scale, ends.log_density)


def _scaled(
    density: Points, z: np.ndarray, scale: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    values, gradients = density(z * scale)
    return values, gradients * scale


def _climb(density: Points, starts: Float[np.ndarray, "starts dim"]) -> Ends:
    x = np.array(starts, float)
    value, gradient = density(x)
    sound = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    x, value, gradient = x[sound], value[sound], gradient[sound]
    if len(x) == 0:
        return Ends(x, value)
    memory = _Memory(*x.shape)
    active = np.linalg.norm(gradient, axis=1) > _FLAT
    strikes = np.zeros(len(x), int)  # steps in a row without a gain
    for _ in range(_MAX_STEPS):
        rows = np.flatnonzero(active)
        if len(rows) == 0:
            break
        # Far out numbers overflow; what comes of that is refused by the line search.
        direction = memory.direction(rows, gradient[rows])
        new = _line_search(density, x[rows], value[rows], gradient[rows], direction)
        gained = new[1] - value[rows]
        memory.learn(rows, new[0] - x[rows], gradient[rows] - new[2])
        x[rows], value[rows], gradient[rows] = new
        moving = gained > _GAIN * (1.0 + 1e-3 * np.abs(value[rows]))
        steep = np.linalg.norm(gradient[rows], axis=1) > _FLAT
        # A stuck climb starts again from the plain gradient, and is given a few steps to learn.
        strikes[rows] = np.where(moving, 0, strikes[rows] + 1)
        memory.forget(rows[strikes[rows] == 1])
        active[rows] = steep & (strikes[rows] < _MAX_STRIKES)
    order = np.argsort(-value)
    return Ends(x[order], value[order])


def separate_modes(density: Density, ends: Ends) -> Bool[np.ndarray, " ends"]:
    """Which ends are modes of their own: the best, and those beyond a dip from every better one."""
    found = np.zeros(len(ends.x), bool)
    remaining = np.ones(len(ends.x), bool)
    while remaining.any():
        best = int(np.argmax(remaining))
        found[best], remaining[best] = True, False
        others = np.flatnonzero(remaining)
        if len(others) == 0:
            break
        lowest = lowest_between(density, ends.x[best], ends.x[others])
        joined = others[ends.log_density[others] - lowest < _DIP]
        remaining[joined] = False
    return found


def lowest_between(
    density: Density, x: Float[np.ndarray, " dim"], others: Float[np.ndarray, "others dim"]
) -> Float[np.ndarray, " others"]:
    """The lowest log density on straight lines from one point to others; −∞ without one."""
    share = (np.arange(_POINTS_BETWEEN) + 0.5)[:, None, None] / _POINTS_BETWEEN
    points = x + share * (others - x)
    values = density.values(points.reshape(-1, len(x))).reshape(_POINTS_BETWEEN, -1)
    return np.where(np.isnan(values), -np.inf, values).min(axis=0)


def _line_search(
    density: Points,
    x: Float[np.ndarray, "rows dim"],
    value: Float[np.ndarray, " rows"],
    gradient: Float[np.ndarray, "rows dim"],
    direction: Float[np.ndarray, "rows dim"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places uphill along the directions, shortened until they gain; as they were where none do."""
    best = (x.copy(), value.copy(), gradient.copy())
    promise = np.sum(gradient * direction, axis=1)
    length, waiting = np.ones(len(x)), np.arange(len(x))
    for _ in range(_MAX_SHORTENINGS):
        tried = x[waiting] + length[waiting, None] * direction[waiting]
        new_value, new_gradient = density(tried)
        sound = np.isfinite(new_value) & np.isfinite(new_gradient).all(axis=1)
        needed = value[waiting] + _ARMIJO * length[waiting] * promise[waiting]
        with np.errstate(invalid="ignore"):
            good = sound & (new_value >= needed)
        for old, new in zip(best, (tried, new_value, new_gradient), strict=True):
            old[waiting[good]] = new[good]
        waiting = waiting[~good]
        if len(waiting) == 0:
            break
        length[waiting] *= _SHORTER
    return best


class _Memory:
    """The last steps of every climb and how the gradient changed over them."""

    def __init__(self, count: int, dim: int):
        self.steps = np.zeros((count, _MEMORY, dim))
        self.changes = np.zeros((count, _MEMORY, dim))
        self.inverse = np.zeros((count, _MEMORY))  # of the products of both; 0 where there is none
        self.scale = np.zeros(count)  # of a first guess at the inverse curvature; 0: unknown

    def direction(self, rows: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The two-loop recursion (Nocedal & Wright, algorithm 7.4) of the given climbs."""
        steps, changes, inverse = self.steps[rows], self.changes[rows], self.inverse[rows]
        q, alphas = gradient.copy(), np.zeros((_MEMORY, len(rows)))
        for j in range(_MEMORY):
            alphas[j] = inverse[:, j] * np.sum(steps[:, j] * q, axis=1)
            q -= alphas[j][:, None] * changes[:, j]
        # Without any curvature yet, a step of length one at most.
        first = 1.0 / np.maximum(np.linalg.norm(gradient, axis=1), 1.0)
        q *= np.where(self.scale[rows] > 0, self.scale[rows], first)[:, None]
        for j in reversed(range(_MEMORY)):
            beta = inverse[:, j] * np.sum(changes[:, j] * q, axis=1)
            q += (alphas[j] - beta)[:, None] * steps[:, j]
        uphill = np.sum(q * gradient, axis=1) > 0
        return np.where(uphill[:, None], q, first[:, None] * gradient)

    def learn(self, rows: np.ndarray, step: np.ndarray, change: np.ndarray) -> None:
        """Remember the newest step first; one along which the density curves up is left out."""
        product = np.sum(step * change, axis=1)
        norm = np.sum(change**2, axis=1)
        curved = product > 1e-10 * np.sqrt(norm * np.sum(step**2, axis=1)) + 1e-300
        kept, rows = np.flatnonzero(curved), rows[curved]
        for table, new in ((self.steps, step), (self.changes, change)):
            table[rows, 1:] = table[rows, :-1]
            table[rows, 0] = new[kept]
        self.inverse[rows, 1:] = self.inverse[rows, :-1]
        self.inverse[rows, 0] = 1.0 / product[kept]
        self.scale[rows] = product[kept] / norm[kept]

    def forget(self, rows: np.ndarray) -> None:
        """Drop what is known of the curvature."""
        self.inverse[rows] = 0.0
        self.scale[rows] = 0.0
