"""What is known of a target before training: its modes, a population of draws, coordinates."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.mcmc.chains import (
    GRADIENTS_PER_CALL,
    GROUP_SIZE,
    MOVES_PER_CALL,
    NUM_GROUPS,
    NUM_LEAPFROG,
)
from follmer.mcmc.curvature import flat_direction
from follmer.mcmc.mixtures import Mixture, finite_or_none, safe_cholesky
from follmer.mcmc.modes import Modes, find_modes
from follmer.mcmc.population import Population, fitted_proposal, fitted_site, populate
from follmer.mcmc.tempering import Tempered, temper
from follmer.plans.policy import POLICY, Policy
from follmer.targets import AbstractTarget, Affine, Density
from follmer.targets.affine import from_covariance
from follmer.tools import storage
from follmer.tools.keys import generator, named_key
from follmer.tools.progress import NEVER

# Temperatures that a tempering takes, about.
_TEMPERATURES = 30
# Draws of a population from which coordinates are read, and of a Gaussian by which it is weighed.
_NUM_DRAWS, _NUM_WEIGHED = 8192, 256
_FILE_KIND = "rung"


class Store:
    """A file in which a rung keeps what it has so far, and finds what an interrupted run left."""

    def __init__(self, path: Path, fingerprint: dict[str, Any], *, resume: bool):
        self._path, self._fingerprint, self._resume = path, fingerprint, resume

    def load(self) -> dict[str, np.ndarray] | None:
        """The arrays of an interrupted run with the same arguments; None where there are none."""
        if not self._resume or not storage.exists(self._path):
            return None
        header, arrays = storage.read(self._path, _FILE_KIND)
        return arrays if header["fingerprint"] == self._fingerprint else None

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Replace the file by one that holds these arrays."""
        storage.write(self._path, _FILE_KIND, {"fingerprint": self._fingerprint}, arrays)


class Survey:
    """A target looked at from the host; each thing is found once, when it is first asked for."""

    def __init__(
        self,
        target: AbstractTarget,
        key: PRNGKeyArray,
        *,
        policy: Policy = POLICY,
        tell: Callable[[str], object] = lambda line: None,
        out_of_time: Callable[[], bool] = NEVER,
        progress: bool = True,
        store: Store | None = None,
    ):
        self.target = target
        self.policy = policy
        self.progress = progress
        self.store = store  # where a rung may keep what it has so far
        self.density = Density(target)
        self._key = key
        self.recalled: Mapping[str, Any] | None = None  # facts of an interrupted run
        self._tell = tell
        self.out_of_time = out_of_time

    @functools.cached_property
    def modes(self) -> Modes:
        """Where climbs lead."""
        self._tell("climbing to modes")
        dim, cost = self.density.dim, self.target.gradient_cost
        first, to_one, most = self.policy.num_climbs(dim, cost)
        return find_modes(
            self.density,
            named_key(self._key, "modes"),
            num_starts=first,
            climbs_to_one=to_one,
            max_climbs=most,
            num_screened=self.policy.num_screened(dim, cost),
            stop=self.out_of_time,
        )

    @property
    def gaussian(self) -> Mixture:
        """The Gaussian at the best mode, by its curvature."""
        return self.modes.gaussians[0]

    @functools.cached_property
    def tempered(self) -> Tempered:
        """Particles from a normal that is wide enough for all modes."""
        x, least = self.modes.x, self.policy.narrowest_start
        scale = (
            np.maximum(1.5 * x.std(axis=0), least) if len(x) else np.full(self.target.dim, least)
        )
        mean = x.mean(axis=0) if len(x) else np.zeros(self.target.dim)
        per_particle = float(_TEMPERATURES * MOVES_PER_CALL * NUM_LEAPFROG)
        count = self.policy.particles(self.target.gradient_cost, per_particle)
        key = named_key(self._key, "tempering")
        return temper(self.density, mean, scale, count, key, self._tell, self.out_of_time)

    @functools.cached_property
    def population(self) -> Population | None:
        """Draws by Markov chains; None where gradients are too expensive, or nothing was found."""
        return self._populated(self._calls(needed=False))

    @functools.cached_property
    def needed_population(self) -> Population | None:
        """The population; by chains that take long where no flow is likely to arrive."""
        if self.population is None and self._needs_chains:
            return self._populated(self._calls(needed=True))
        return self.population

    @property
    def chains_come_first(self) -> bool:
        """Whether chains take long, and are run only where no flow is likely to arrive."""
        return self._calls(needed=False) == 0 < self._calls(needed=True)

    def _calls(self, *, needed: bool) -> int:
        # A move takes a gradient, and two products with a dense factor.
        dim = self.density.dim
        cost = self.target.gradient_cost + 4.0 * dim**2
        return self.policy.num_calls(dim, cost, GRADIENTS_PER_CALL, needed=needed)

    @property
    def _needs_chains(self) -> bool:
        """Whether there is a mode, and no flow from its curvature is likely to arrive."""
        if not self.chains_come_first or len(self.modes.x) == 0:
            return False
        points = self.gaussian.draw(_NUM_WEIGHED, generator(self._key, "spread"))
        logs = finite_or_none(self.density.values(points)) - self.gaussian.log_density(points)
        spread = float(np.std(logs)) if np.isfinite(logs).all() else float("inf")
        cost = self.target.gradient_cost
        return not self.policy.flow_is_likely(self.density.dim, cost, spread)

    def _populated(self, calls: int) -> Population | None:
        """A population by so many calls of chains; of particles where that is safer."""
        dim = self.density.dim
        if calls == 0 or dim > self.policy.max_dense:
            return None
        if self.modes.are_countless and dim <= self.policy.max_explored:
            return self._from_particles()
        if len(self.modes.x) == 0:
            return None
        self._tell("running chains")
        key = named_key(self._key, "population")
        agree, stop = self.policy.agree, self.out_of_time
        found = populate(self.density, self.modes, key, agree=agree, max_calls=calls, stop=stop)
        if found is None and dim <= self.policy.max_explored:
            return self._from_particles()
        return found

    @property
    def flat(self) -> str:
        """Coordinates along which, together, the density does not fall off; none if empty.

        Of an interrupted run, its own; not looked for before there are modes.
        """
        if self.recalled is not None:
            return self.recalled.get("flat", "")
        return self._flat if "modes" in vars(self) else ""

    @functools.cached_property
    def _flat(self) -> str:
        if len(self.modes.x) == 0 or self.density.dim > self.policy.max_explored:
            return ""
        factor = safe_cholesky(self.gaussian.covariances[0])
        found = flat_direction(self.density, self.modes.x[0], factor)
        names = [self.target.space.coordinate_name(one) for one in found]
        return names[0] if len(names) == 1 else " and ".join(names[:3])

    @property
    def facts(self) -> Mapping[str, Any]:
        """What an audit should know of the search for modes; of an interrupted run, its own."""
        if self.recalled is not None:
            return self.recalled
        if "modes" not in vars(self):
            return {}
        tempered = vars(self).get("tempered")
        population = vars(self).get("population")
        rests_on = str(self.modes)
        if tempered is not None:
            rests_on += f"; {len(tempered.particles)} tempered particles"
        elif population is not None:
            rests_on += f"; {population.num_chains} Markov chains"
        ended = tempered is not None or self.modes.search_ended
        if not ended and population is not None and population.hold_mass is not None:
            # Chains know better than curvatures which modes hold any mass.
            ended = self.modes.has_seen_all(population.hold_mass)
        return {
            "search_ended": ended,
            "second_log_evidence": None if tempered is None else tempered.log_evidence,
            "flat": self.flat,
            "rests_on": rests_on,
        }

    @property
    def population_to_compare(self) -> Population | None:
        """The population, unless nothing has asked for it yet and it would take a tempering."""
        if "population" in vars(self) or not self.modes.are_countless:
            return self.population
        return None

    @functools.cached_property
    def affine(self) -> Affine:
        """Coordinates in which the population, or the Gaussian at the mode, is near N(0, I)."""
        population = self.population
        if population is None:
            mean, covariance = self.gaussian.means[0], self.gaussian.covariances[0]
        elif len(population.sites) == 1 and len(population.sites[0].mixture.shares) == 1:
            mixture = population.sites[0].mixture
            mean, covariance = mixture.means[0], mixture.covariances[0]
        else:
            draws = population.draws(_NUM_DRAWS, generator(self._key, "coordinates"))
            mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
        return from_covariance(mean, covariance, self.target.dtype)

    def _from_particles(self) -> Population:
        """The tempered particles as a population of one site."""
        x, gradients, log_evidence, _, reached = self.tempered
        size = NUM_GROUPS * GROUP_SIZE
        draws, slopes = (
            part[: len(part) // size * size].reshape(-1, size, part.shape[1])
            for part in (x, gradients)
        )
        # Particles that did not arrive are no draws of the target.
        rhat = 1.0 if reached == 1.0 else float("inf")
        rng = generator(self._key, "particles")
        site = fitted_site(draws, slopes, rhat, rng)
        proposal = fitted_proposal(self.density, [site], np.ones(1), rng)
        return Population((site,), np.ones(1), log_evidence, proposal)
