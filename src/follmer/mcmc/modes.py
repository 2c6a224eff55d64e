"""The modes of a density, looked for from starts at many scales."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.mcmc.climbs import Ends, climb, lowest_between, separate_modes
from follmer.mcmc.curvature import coordinate_widths
from follmer.targets import Density
from follmer.tools.keys import generator

# Starts of a round.
NUM_STARTS = 64
# Half of the first starts are scattered at scales from 1 to this many of the coordinates' units.
FARTHEST = 1e3
# Rounds in all. More are made for as long as this share of climbs ends in modes seen only once: the
# chance that another climb finds a new one (Good & Turing; Good 1953).
_MAX_ROUNDS, _UNSEEN = 40, 0.004
# Starts of later rounds are this many times as spread as the modes found so far.
_WIDER = 1.5
# A mode so many nats below the best, and more for each coordinate, cannot hold any mass.
_FAR_BELOW, _FAR_BELOW_EACH = 20.0, 10.0
# New ends are first compared with so many of the nearest known modes.
_NEAREST = 3
_DIP = 1.0
# Modes are countless where so many climbs, and this share of them, end apart; or above a number.
_MANY_CLIMBS, _APART, _MOST = 128, 0.5, 64


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
    rng, dim = generator(key, "starts"), density.target.dim
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
        self.x = np.zeros((0, density.target.dim))
        self.log_density = np.zeros(0)
        self.visits = np.zeros(0, int)
        self.num_climbs = 0

    @property
    def unseen(self) -> float:
        return float(np.sum(self.visits == 1)) / max(int(self.visits.sum()), 1)

    def add(self, starts: Float[np.ndarray, "starts dim"]) -> None:
        """Climb from more starts."""
        self.num_climbs += len(starts)
        ends = climb(self._density, starts)
        if len(ends.x) and len(starts) > 1:
            # A climb may stop short where scales differ: from there another one goes on.
            scale = coordinate_widths(self._density, ends.x[0])
            ends = climb(self._density, ends.x, scale)
        unknown = self._new(ends)
        if len(unknown.x) == 0:
            return
        apart = separate_modes(self._density, unknown)
        self.x = np.concatenate([self.x, unknown.x[apart]])
        self.log_density = np.concatenate([self.log_density, unknown.log_density[apart]])
        self.visits = np.concatenate([self.visits, np.zeros(apart.sum(), int)])
        self._sort()
        self._new(unknown)

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
