"""The modes of a density: climbs, many at once, from starts at many scales."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from follmer.mcmc.climbs import NEARLY, ROUGHLY, Ends, climb, climbed
from follmer.mcmc.curvature import coordinate_widths, gaussian_at
from follmer.mcmc.mixtures import Mixture, safe_cholesky
from follmer.targets import Density
from follmer.tools.keys import generator
from follmer.tools.progress import NEVER

# Starts of a round.
NUM_STARTS = 64
# At least so many, where none of the first meets a density.
_OTHERS = 4
# Half of the first starts are scattered at scales from 1 to this many of the coordinates' units.
FARTHEST = 1e3
# Where there are several modes, climbs go on until the chance that another one finds a new mode is
# below this: modes seen once, as a share of the climbs (Good & Turing; Good 1953), and three more
# where none is (the rule of three: such a chance of 3/n would go unseen once in 20 times).
# And until half of all climbs have found nothing new.
_UNSEEN, _ONE_IN_TWENTY = 0.001, 3.0
# A search that is cut short has ended all the same where the chance is below this.
_NEARLY_SEEN = 0.01
# A mode whose Laplace approximation holds so many nats less mass than the best one's, and one more
# for each coordinate, does not count there.
_NO_MASS = 20.0
# Starts of a later round: as many as all before, up to this number. A third are spread evenly over
# a box this many times as wide as that of the modes so far, a third by a normal this many times as
# wide as they are, and a third around single modes and 0, from one to so many of their widths away,
# in some coordinates or all: narrow modes are small beside the box, far ones beyond it, and two may
# be far from all others.
_LATER_STARTS, _WIDER_BOX, _WIDER, _FARTHEST_WIDTHS = 256, 1.2, 1.5, 1e3
# So many times more points are screened while one mode is known: it does not tell where to look.
_MORE_FROM_ONE = 4
# A mode so many nats below the best, and more for each coordinate, cannot hold any mass.
_FAR_BELOW, _FAR_BELOW_EACH = 20.0, 10.0
# New ends are first compared with so many of the nearest known modes.
_NEAREST = 3
# Modes are countless where so many climbs, and this share of them, end apart; or above a number.
_MANY_CLIMBS, _APART, _MOST = 128, 0.5, 64
# A dip of this many nats on the straight line between two ends makes them two modes.
_DIP = 1.0
_POINTS_BETWEEN = 16
# Climbs of the last kind: how often, in the coordinates' widths and in their own units, and nats
# that none gains any more.
_UNITS_ROUNDS, _ARRIVED = 4, 0.1
# Rounds in which ends are joined to ridges: each may double a ridge's length.
_RIDGE_ROUNDS = 6


class Modes(NamedTuple):
    """Separate modes, best first, and how the search for them went."""

    x: Float[np.ndarray, "modes dim"]
    log_density: Float[np.ndarray, " modes"]
    gaussians: tuple[Mixture, ...]  # one at each; where they are countless, at the best alone
    num_climbs: int
    farthest: float  # the scale of the farthest starts
    visits: Int[np.ndarray, " modes"]  # climbs that ended there
    found_after: Int[np.ndarray, " modes"]  # climbs until it was found
    are_countless: bool = False  # climbs kept finding new ones: signs and orders may be arbitrary

    @property
    def search_ended(self) -> bool:
        """Whether few other modes can be left."""
        return self.has_seen_all(np.ones(len(self.x), bool))

    def has_seen_all(self, hold_mass: Bool[np.ndarray, " modes"]) -> bool:
        """Whether the search has ended, where these of the modes are known to hold mass."""
        if self.are_countless or hold_mass.sum() <= 1:
            return not self.are_countless
        visits, found_after = self.visits[hold_mass], self.found_after[hold_mass]
        num_visits = int(self.visits.sum())
        return _has_seen_all(visits, found_after, num_visits, self.num_climbs, _NEARLY_SEEN)

    def __str__(self) -> str:
        found = "one mode" if len(self.x) == 1 else f"{len(self.x)} modes"
        far = f"starts up to {self.farthest:.0f} units away"
        return f"{self.num_climbs} climbs from {far} found {found}"


def find_modes(
    density: Density,
    key: PRNGKeyArray,
    *,
    num_starts: int = NUM_STARTS,
    climbs_to_one: int = 1,
    max_climbs: int = 32768,
    num_screened: int = 0,
    stop: Callable[[], bool] = NEVER,
) -> Modes:
    """Climb from starts near and far, and again among what was found while there is more.

    One mode is believed to be the only one after `climbs_to_one`. Half of the later starts are
    those of `num_screened` points in each round that the modes so far explain least.
    """
    rng, dim = generator(key, "starts"), density.dim
    near = rng.normal(size=(-(-num_starts // 2), dim))
    near[0] = 0.0
    far = rng.normal(size=(num_starts // 2, dim))
    far *= FARTHEST ** rng.uniform(size=(len(far), 1))
    found = _Found(density)
    found.add(np.concatenate([near, far]))
    if len(found.x) == 0:
        # 0 may be where there is no density, as where all rows of a matrix are alike.
        found.add(rng.normal(size=(max(num_starts, _OTHERS), dim)))
    while found.num_climbs < (climbs_to_one if found.is_one else max_climbs):
        if found.are_countless or not found.may_miss_some or stop():
            break
        count = min(found.num_climbs, _LATER_STARTS, max_climbs - found.num_climbs)
        found.add(_later_starts(found, count, num_screened, rng))
    return found.modes(FARTHEST if num_starts > 1 else 1.0)


def _later_starts(
    found: "_Found", count: int, num_screened: int, rng: np.random.Generator
) -> Float[np.ndarray, "count dim"]:
    """Starts among what was found: half by chance, half of many more that are screened."""
    chosen = count // 2 if num_screened > count else 0
    by_chance = _among(found, count - chosen, rng)
    if chosen == 0:
        return by_chance
    screened = _among(found, num_screened * (_MORE_FROM_ONE if len(found.x) == 1 else 1), rng)
    return np.concatenate([by_chance, found.least_explained(screened, chosen)])


def _among(found: "_Found", count: int, rng: np.random.Generator) -> Float[np.ndarray, "count dim"]:
    """Starts among all modes, around them, and around single ones, near and far."""
    modes, dim = found.x, found.x.shape[1]
    # One mode tells nothing of how far others may be.
    alone = count if len(modes) == 1 else count // 3
    in_box = (count - alone) // 2
    low, high = modes.min(axis=0) - 1.0, modes.max(axis=0) + 1.0
    box = 0.5 * (low + high) + 0.5 * _WIDER_BOX * (high - low) * rng.uniform(-1, 1, (in_box, dim))
    spread = _WIDER * (modes.std(axis=0) + 1.0)
    around = modes.mean(axis=0) + spread * rng.normal(size=(count - alone - in_box, dim))
    # Around each mode, and around 0 in the coordinates' own units. Half move in all coordinates,
    # half in some: where modes differ in a few of many, moves of all together meet no other.
    centres = np.concatenate([modes, np.zeros((1, dim))])
    units = np.concatenate([np.tile(found.widths, (len(modes), 1)), np.ones((1, dim))])
    chosen = rng.integers(len(centres), size=alone)
    moved = rng.uniform(size=(alone, dim)) < dim ** -rng.uniform(-1, 1, (alone, 1))
    away = np.where(moved, _FARTHEST_WIDTHS ** rng.uniform(size=(alone, 1)), 1.0)
    single = centres[chosen] + units[chosen] * away * rng.normal(size=(alone, dim))
    return np.concatenate([box, around, single])


class _Found:
    """The modes so far, how often each was reached, and climbs that ended."""

    def __init__(self, density: Density):
        self._density = density
        self.x = np.zeros((0, density.dim))
        self.log_density = np.zeros(0)
        self.gaussians: tuple[Mixture, ...] = ()
        self.visits = np.zeros(0, int)
        self.found_after = np.zeros(0, int)  # climbs until it was
        self.widths = np.ones(density.dim)  # of the coordinates, at a mode
        self.num_climbs = 0

    @property
    def hold_mass(self) -> Bool[np.ndarray, " modes"]:
        """Which modes may."""
        return _may_hold_mass(self.log_density, self.gaussians)

    @property
    def is_one(self) -> bool:
        """Whether one mode alone may hold mass."""
        return int(self.hold_mass.sum()) == 1

    @property
    def may_miss_some(self) -> bool:
        """Whether climbs should go on, where there is a mode at all."""
        some, num_visits = self.hold_mass, int(self.visits.sum())
        if some.sum() < 2:
            return bool(some.any())
        visits, found_after = self.visits[some], self.found_after[some]
        return not _has_seen_all(visits, found_after, num_visits, self.num_climbs, _UNSEEN)

    @property
    def are_countless(self) -> bool:
        """Whether climbs keep finding new ones."""
        apart = self.num_climbs >= _MANY_CLIMBS and len(self.x) > _APART * self.num_climbs
        return apart or len(self.x) > _MOST

    def add(self, starts: Float[np.ndarray, "starts dim"]) -> None:
        """Climb from more starts."""
        self.num_climbs += len(starts)
        ends = climb(self._density, starts, arrival=ROUGHLY)
        if len(ends.x) == 0:
            return
        # It may stop short where scales differ: in the best one's units all go on.
        self.widths = scale = coordinate_widths(self._density, ends.x[0])
        unknown = self._new(climb(self._density, ends.x, scale, NEARLY))
        if len(unknown.x) == 0:
            return
        new = self._off_known_ridges(self._finished(unknown, scale), scale)
        if len(new.x) == 0:
            return
        self.x = np.concatenate([self.x, new.x])
        self.log_density = np.concatenate([self.log_density, new.log_density])
        self.gaussians += tuple(gaussian_at(self._density, x) for x in new.x)
        self.visits = np.concatenate([self.visits, np.zeros(len(new.x), int)])
        now = np.full(len(new.x), self.num_climbs)
        self.found_after = np.concatenate([self.found_after, now])
        self._sort()
        self._new(unknown)

    def least_explained(
        self, x: Float[np.ndarray, "points dim"], count: int
    ) -> Float[np.ndarray, "count dim"]:
        """The points from where the density rises least towards any known mode.

        By the angle between the slope and the way to the mode, in the mode's own metric: 0 at all
        points where a density is Gaussian, or a function of the distance, wherever they are. A
        narrow mode that climbs are unlikely to start near shows by one gradient each.
        """
        _, slopes = self._density(x)
        steepest = np.abs(slopes).max(axis=1)
        known = np.isfinite(steepest) & (steepest > 0.0)
        x, slopes = x[known], slopes[known] / steepest[known, None]
        explained = np.full(len(x), -1.0)
        for one in self.gaussians:
            root = safe_cholesky(one.covariances[0])
            slope, way = slopes @ root, np.linalg.solve(root, (one.means[0] - x).T).T
            lengths = np.linalg.norm(slope, axis=1) * np.linalg.norm(way, axis=1)
            cosines = np.sum(slope * way, axis=1) / np.maximum(lengths, np.finfo(float).tiny)
            explained = np.maximum(explained, cosines)
        return x[np.argsort(explained)[:count]]

    def _finished(self, ends: Ends, scale: Float[np.ndarray, " dim"]) -> Ends:
        """Those ends that are modes of their own, after climbs that had not arrived went on."""
        ends = self._apart(ends)
        for units in _UNITS_ROUNDS * (scale, 1.0):
            lower = ends.log_density
            ends = climb(self._density, ends.x, units)
            arrived = np.all(ends.log_density - lower < _ARRIVED)
            ends = self._apart(ends)
            if arrived and units is not scale:
                break
        return ends

    def _apart(self, ends: Ends) -> Ends:
        """One end of those that no dip separates."""
        apart = separate_modes(self._density, ends)
        return Ends(ends.x[apart], ends.log_density[apart])

    def _off_known_ridges(self, ends: Ends, scale: Float[np.ndarray, " dim"]) -> Ends:
        """The best end on each ridge that no known mode stands on."""
        x = np.concatenate([self.x, ends.x])
        heights = np.concatenate([self.log_density, ends.log_density])
        ridge = ridges(self._density, Ends(x, heights), scale)
        old, own = ridge[: len(self.x)], ridge[len(self.x) :]
        _, first = np.unique(own, return_index=True)
        first = np.sort(first[~np.isin(own[first], old)])
        return Ends(ends.x[first], ends.log_density[first])

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
        self.gaussians = tuple(self.gaussians[i] for i in order)
        self.visits, self.found_after = self.visits[order], self.found_after[order]

    def modes(self, farthest: float) -> Modes:
        """What was found, without what can hold no mass: climbs that a ridge has stopped."""
        if self.are_countless:
            kept, gaussians = np.ones(len(self.x), bool), self.gaussians[:1]
        else:
            kept = self.hold_mass
            gaussians = tuple(self.gaussians[i] for i in np.flatnonzero(kept))
        parts = (self.x[kept], self.log_density[kept], gaussians, self.num_climbs, farthest)
        told = (self.visits[kept], self.found_after[kept])
        return Modes(*parts, *told, are_countless=self.are_countless)


def _may_hold_mass(
    log_density: Float[np.ndarray, " modes"], gaussians: tuple[Mixture, ...]
) -> Bool[np.ndarray, " modes"]:
    """Which modes hold any mass beside the best one, by their Laplace approximations."""
    if len(log_density) == 0:
        return np.zeros(0, bool)
    widths = [np.linalg.slogdet(one.covariances[0])[1] for one in gaussians]
    masses = log_density + 0.5 * np.asarray(widths)
    return masses > masses.max() - _NO_MASS - gaussians[0].means.shape[1]


def _has_seen_all(
    visits: Int[np.ndarray, " modes"],
    found_after: Int[np.ndarray, " modes"],
    num_visits: int,
    num_climbs: int,
    unseen: float,
) -> bool:
    """Whether the chance that one more climb finds another mode such as these is small."""
    chance = (float(np.sum(visits == 1)) + _ONE_IN_TWENTY) / max(num_visits, 1)
    return chance <= unseen and num_climbs >= 2 * max(found_after, default=0)


def ridges(
    density: Density, ends: Ends, scale: Float[np.ndarray, " dim"] | float
) -> Int[np.ndarray, " ends"]:
    """A number for each end, the same for ends on one ridge.

    Along a curved ridge a straight line dips between two ends. Where a climb from its middle comes
    to a third point, and neither line to that one dips, they stand on one ridge. Each end is tried
    with its nearest on another ridge, and again as ridges grow.
    """
    ridge, count = np.arange(len(ends.x)), len(ends.x)
    distance = np.linalg.norm((ends.x[:, None] - ends.x) / scale, axis=2)
    for _ in range(_RIDGE_ROUNDS):
        apart = np.where(ridge[:, None] == ridge, np.inf, distance)
        nearest = np.argmin(apart, axis=1)
        tried = np.isfinite(apart[np.arange(count), nearest])
        pairs = np.unique(np.sort(np.stack([np.arange(count), nearest], 1)[tried], axis=1), axis=0)
        if len(pairs) == 0:
            break
        same = pairs[_are_joined(density, ends, pairs, scale)]
        for one, other in same:
            ridge[ridge == ridge[other]] = ridge[one]
        if len(same) == 0:
            break
    return ridge


def _are_joined(
    density: Density,
    ends: Ends,
    pairs: Int[np.ndarray, "pairs 2"],
    scale: Float[np.ndarray, " dim"] | float,
) -> Bool[np.ndarray, " pairs"]:
    """Whether a path without a dip leads from one to the other, by way of a third point."""
    one, other = ends.x[pairs[:, 0]], ends.x[pairs[:, 1]]
    least = ends.log_density[pairs].min(axis=1) - _DIP
    middle, value = climbed(density, 0.5 * (one + other), scale, NEARLY)
    lowest = [lowest_between(density, each, middle) for each in (one, other)]
    return np.isfinite(value) & (np.minimum(*lowest) > least)


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
    density: Density, x: Float[np.ndarray, "*others dim"], others: Float[np.ndarray, "others dim"]
) -> Float[np.ndarray, " others"]:
    """The lowest log density on straight lines from one point, or each of some, to others."""
    share = (np.arange(_POINTS_BETWEEN) + 0.5)[:, None, None] / _POINTS_BETWEEN
    points = x + share * (others - x)
    values = density.values(points.reshape(-1, others.shape[1])).reshape(_POINTS_BETWEEN, -1)
    return np.where(np.isnan(values), -np.inf, values).min(axis=0)
