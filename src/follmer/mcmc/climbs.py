"""L-BFGS on many starts in lockstep, on the host: every step evaluates all of them at once."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

# Steps of a climb, and places that its curvature is read from.
_MAX_STEPS, _MEMORY = 200, 8
# The gradient's norm below which it has arrived.
_FLAT = 1e-8
# A step that does not gain this share of what its slope promises is shortened: several lengths,
# relative to the last, are tried at once, so many times.
_ARMIJO = 1e-4
_SHORTER, _MAX_SHORTENINGS = 4.0 ** -np.arange(1.0, 5.0), 6


class Ends(NamedTuple):
    """Where climbs ended, best first."""

    x: Float[np.ndarray, "ends dim"]
    log_density: Float[np.ndarray, " ends"]


class Arrival(NamedTuple):
    """When climbs have arrived."""

    gain: float  # nats that a step gains
    strikes: int  # steps in a row that gain less
    share_left: float  # of the climbs, which are not waited for


# Of many climbs the slowest few are not waited for until it matters.
ROUGHLY, NEARLY, FINELY = Arrival(1.0, 1, 0.25), Arrival(1e-3, 2, 0.25), Arrival(1e-5, 6, 0.0)


class Climbable(Protocol):
    """What climbs ask of a `Density`: the function itself, in one call for each step of all."""

    most: int  # rows of points that a call takes
    gradient_evaluations: int  # so far

    @property
    def run(self) -> Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]:
        """Log densities and gradients at rows of points, of which so many count."""


# Log densities and gradients at rows of points.
_Points = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@np.errstate(over="ignore", invalid="ignore")
def climb(
    density: Climbable,
    starts: Float[np.ndarray, "starts dim"],
    scale: Float[np.ndarray, " dim"] | float = 1.0,
    arrival: Arrival = FINELY,
) -> Ends:
    """L-BFGS from each start, all in lockstep; those that meet no finite density are left out.

    In units of `scale`, the coordinates' widths, a badly scaled density is climbed more surely.
    """
    x, value = climbed(density, starts, scale, arrival)
    order = np.argsort(-value)
    order = order[np.isfinite(value[order])]
    return Ends(x[order], value[order])


@np.errstate(over="ignore", invalid="ignore")
def climbed(
    density: Climbable,
    starts: Float[np.ndarray, "starts dim"],
    scale: Float[np.ndarray, " dim"] | float,
    arrival: Arrival,
) -> tuple[Float[np.ndarray, "starts dim"], Float[np.ndarray, " starts"]]:
    """Where a climb from each start ends, and its height; −∞ where it meets no finite density."""
    z = np.asarray(starts, float) / scale
    scaled = _Scaled(density, scale)
    value, gradient = scaled(z)
    sound = np.isfinite(value) & np.isfinite(gradient).all(axis=1)
    ends, heights = np.asarray(starts, float).copy(), np.full(len(z), -np.inf)
    if sound.any():
        x, found = _climb(scaled, (z[sound], value[sound], gradient[sound]), arrival)
        ends[sound], heights[sound] = x * scale, found
    density.gradient_evaluations += scaled.count
    return ends, heights


class _Scaled:
    """A density in coordinates z, x = scale z; counts the points that it is evaluated at."""

    def __init__(self, density: Climbable, scale: np.ndarray | float):
        self._run, self._most, self._scale, self.count = density.run, density.most, scale, 0

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.count += len(z)
        found = []
        for some in np.split(z * self._scale, range(self._most, len(z), self._most)):
            filled = np.pad(some, ((0, self._most - len(some)), (0, 0)), "edge")
            found.append(self._run(filled, np.asarray(len(some))))
        values, gradients = (np.concatenate(parts)[: len(z)] for parts in zip(*found, strict=True))
        return values.astype(float), gradients.astype(float) * self._scale


def _climb(
    density: _Points, begun: tuple[np.ndarray, np.ndarray, np.ndarray], arrival: Arrival
) -> tuple[np.ndarray, np.ndarray]:
    """Ends and their heights, from places, heights and gradients there."""
    x, value, gradient = (np.array(part) for part in begun)
    memory = _Memory(*x.shape)
    active = np.linalg.norm(gradient, axis=1) > _FLAT
    strikes = np.zeros(len(x), int)  # steps in a row without a gain
    for _ in range(_MAX_STEPS):
        rows = np.flatnonzero(active)
        if len(rows) <= arrival.share_left * len(x):
            break
        # Far out numbers overflow; what comes of that is refused by the line search.
        direction = memory.direction(rows, gradient[rows])
        new = _line_search(density, x[rows], value[rows], gradient[rows], direction)
        gained = new[1] - value[rows]
        memory.learn(rows, new[0] - x[rows], gradient[rows] - new[2])
        x[rows], value[rows], gradient[rows] = new
        moving = gained > arrival.gain * (1.0 + 1e-3 * np.abs(value[rows]))
        steep = np.linalg.norm(gradient[rows], axis=1) > _FLAT
        # A stuck climb starts again from the plain gradient, and is given a few steps to learn.
        strikes[rows] = np.where(moving, 0, strikes[rows] + 1)
        memory.forget(rows[strikes[rows] == 1])
        active[rows] = steep & (strikes[rows] < arrival.strikes)
    return x, value


def _line_search(
    density: _Points,
    x: Float[np.ndarray, "rows dim"],
    value: Float[np.ndarray, " rows"],
    gradient: Float[np.ndarray, "rows dim"],
    direction: Float[np.ndarray, "rows dim"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places uphill along the directions, shortened until they gain; as they were where none do."""
    best = (x.copy(), value.copy(), gradient.copy())
    promise = np.sum(gradient * direction, axis=1)
    lengths, waiting = np.ones(1), np.arange(len(x))
    for _ in range(_MAX_SHORTENINGS):
        # Rows × lengths, the longest first.
        tried = x[waiting, None] + lengths[:, None] * direction[waiting, None]
        new_value, new_gradient = density(tried.reshape(-1, x.shape[1]))
        new = (tried, new_value.reshape(tried.shape[:2]), new_gradient.reshape(tried.shape))
        sound = np.isfinite(new[1]) & np.isfinite(new[2]).all(axis=2)
        good = sound & (new[1] >= value[waiting, None] + _ARMIJO * lengths * promise[waiting, None])
        first, found = np.argmax(good, axis=1), good.any(axis=1)
        for old, one in zip(best, new, strict=True):
            old[waiting[found]] = one[found, first[found]]
        waiting = waiting[~found]
        if len(waiting) == 0:
            break
        lengths = lengths[-1] * _SHORTER
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
