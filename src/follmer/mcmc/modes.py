"""The modes of a density: climbs, many at once, from starts at many scales."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from follmer.mcmc.curvature import coordinate_widths
from follmer.targets import Density
from follmer.tools.keys import generator

# Starts of a round.
NUM_STARTS = 64
# Half of the first starts are scattered at scales from 1 to this many of the coordinates' units.
FARTHEST = 1e3
# Rounds in all. More are made for as long as this share of climbs ends in modes seen only once: the
# chance that another climb finds a new one (Good & Turing; Good 1953).
_MAX_ROUNDS, _UNSEEN = 40, 0.001
# Starts of later rounds are this many times as spread as the modes found so far.
_WIDER = 1.5
# A mode so many nats below the best, and more for each coordinate, cannot hold any mass.
_FAR_BELOW, _FAR_BELOW_EACH = 20.0, 10.0
# New ends are first compared with so many of the nearest known modes.
_NEAREST = 3
# Modes are countless where so many climbs, and this share of them, end apart; or above a number.
_MANY_CLIMBS, _APART, _MOST = 128, 0.5, 64
# Steps of a climb, and places that its curvature is read from.
_MAX_STEPS, _MEMORY = 200, 8
# The gradient's norm below which it has arrived.
_FLAT = 1e-8
# A step that does not gain this share of what its slope promises is shortened: several lengths,
# relative to the last, are tried at once, so many times.
_ARMIJO = 1e-4
_SHORTER, _MAX_SHORTENINGS = 4.0 ** -np.arange(1.0, 5.0), 6
# A dip of this many nats on the straight line between two ends makes them two modes.
_DIP = 1.0
_POINTS_BETWEEN = 16


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


class Modes(NamedTuple):
    """Separate modes, best first, and how the search for them went."""

    x: Float[np.ndarray, "modes dim"]
    log_density: Float[np.ndarray, " modes"]
    num_climbs: int
    farthest: float  # the scale of the farthest starts
    unseen: float  # the chance that one more climb would find another mode

    @property
    def are_countless(self) -> bool:
        """Whether climbs kept finding new ones: signs and orders may be arbitrary."""
        apart = self.num_climbs >= _MANY_CLIMBS and len(self.x) > _APART * self.num_climbs
        return apart or len(self.x) > _MOST

    def __str__(self) -> str:
        found = "one mode" if len(self.x) == 1 else f"{len(self.x)} modes"
        return f"{self.num_climbs} climbs from starts up to {self.farthest:.3g} units away: {found}"


def find_modes(density: Density, key: PRNGKeyArray, *, num_starts: int = NUM_STARTS) -> Modes:
    """Climb from starts near and far, and again among what was found while there is more."""
    rng, dim = generator(key, "starts"), density.dim
    near = rng.normal(size=(-(-num_starts // 2), dim))
    near[0] = 0.0
    far = rng.normal(size=(num_starts // 2, dim))
    far *= FARTHEST ** rng.uniform(size=(len(far), 1))
    found = _Found(density)
    found.add(np.concatenate([near, far]))
    rounds = 1
    while len(found.x) > 1 and found.unseen > _UNSEEN and rounds < _MAX_ROUNDS:
        if found.modes(FARTHEST).are_countless:
            break
        spread = found.x.std(axis=0) + 1.0
        found.add(found.x.mean(axis=0) + _WIDER * spread * rng.normal(size=(num_starts, dim)))
        rounds += 1
    return found.modes(FARTHEST if num_starts > 1 else 1.0)


class _Found:
    """The modes so far, how often each was reached, and climbs that ended."""

    def __init__(self, density: Density):
        self._density = density
        self.x = np.zeros((0, density.dim))
        self.log_density = np.zeros(0)
        self.visits = np.zeros(0, int)
        self.num_climbs = 0

    @property
    def unseen(self) -> float:
        return float(np.sum(self.visits == 1)) / max(int(self.visits.sum()), 1)

    def add(self, starts: Float[np.ndarray, "starts dim"]) -> None:
        """Climb from more starts."""
        self.num_climbs += len(starts)
        ends = climb(self._density, starts, arrival=ROUGHLY)
        if len(ends.x) == 0:
            return
        # It may stop short where scales differ: in the best one's units all go on.
        scale = coordinate_widths(self._density, ends.x[0])
        unknown = self._new(climb(self._density, ends.x, scale, NEARLY))
        if len(unknown.x) == 0:
            return
        new = self._finished(unknown, scale)
        self.x = np.concatenate([self.x, new.x])
        self.log_density = np.concatenate([self.log_density, new.log_density])
        self.visits = np.concatenate([self.visits, np.zeros(len(new.x), int)])
        self._sort()
        self._new(unknown)

    def _finished(self, ends: Ends, scale: Float[np.ndarray, " dim"]) -> Ends:
        """Those ends that are modes of their own, after climbs that had not arrived went on."""
        for units in (scale, 1.0, scale, 1.0):
            apart = separate_modes(self._density, ends)
            before, ends = len(ends.x), Ends(ends.x[apart], ends.log_density[apart])
            if len(ends.x) == 1 or (len(ends.x) == before and units is scale):
                break
            ends = climb(self._density, ends.x, units)
        apart = separate_modes(self._density, ends)
        return Ends(ends.x[apart], ends.log_density[apart])

    def _new(self, ends: Ends) -> Ends:
        """The ends that belong to no known mode; the others are counted as visits."""
        if len(self.x) == 0 or len(ends.x) == 0:
            return ends
        known = np.full(len(ends.x), -1)
        distance = np.linalg.norm(ends.x[:, None] - self.x, axis=2)
        order = np.argsort(distance, axis=1)
        for rank in range(min(_NEAREST, len(self.x))):
            waiting = np.flatnonzero(known < 0)
            for mode in np.unique(order[waiting, rank]):
                some = waiting[order[waiting, rank] == mode]
                lowest = lowest_between(self._density, self.x[mode], ends.x[some])
                least = np.minimum(ends.log_density[some], self.log_density[mode])
                known[some[least - lowest < _DIP]] = mode
        np.add.at(self.visits, known[known >= 0], 1)
        return Ends(ends.x[known < 0], ends.log_density[known < 0])

    def _sort(self) -> None:
        dim = self.x.shape[1]
        best = self.log_density.max()
        kept = self.log_density > best - _FAR_BELOW - _FAR_BELOW_EACH * dim
        order = np.argsort(-self.log_density)
        order = order[kept[order]]
        self.x, self.log_density = self.x[order], self.log_density[order]
        self.visits = self.visits[order]

    def modes(self, farthest: float) -> Modes:
        return Modes(self.x, self.log_density, self.num_climbs, farthest, self.unseen)


# Log densities and gradients at rows of points.
Points = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@np.errstate(over="ignore", invalid="ignore")
def climb(
    density: Points,
    starts: Float[np.ndarray, "starts dim"],
    scale: Float[np.ndarray, " dim"] | float = 1.0,
    arrival: Arrival = FINELY,
) -> Ends:
    """L-BFGS from each start, all in lockstep; those that meet no finite density are left out.

    In units of `scale`, the coordinates' widths, a badly scaled density is climbed more surely.
    """
    ends = _climb(lambda z: _scaled(density, z, scale), np.asarray(starts, float) / scale, arrival)
    return Ends(ends.x * scale, ends.log_density)


def _scaled(
    density: Points, z: np.ndarray, scale: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    values, gradients = density(z * scale)
    return values, gradients * scale


def _climb(density: Points, starts: Float[np.ndarray, "starts dim"], arrival: Arrival) -> Ends:
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
