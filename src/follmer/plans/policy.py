"""Every threshold of the plans, once: with its unit and where it comes from."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Policy:
    """What decides how a posterior is reached. Operations are arithmetic ones, as `cost` counts."""

    # Coordinates up to which covariances are dense (memory and eigenvectors: a minute at most).
    max_dense: int = 3000
    # Coordinates up to which modes are looked for from many starts, and particles are tempered:
    # beyond, so few points say nothing of modes.
    max_explored: int = 200
    # Climbs to modes in one round, and operations that a round may take (seconds).
    num_starts: int = 64
    climb_budget: float = 2e10
    # Climbs in all, where there are several modes; and where there is one, with the operations that
    # they may take (a fraction of a second): narrow modes are rarely met by the first.
    most_climbs: int = 32768
    most_climbs_to_one: int = 256
    climb_to_one_budget: float = 4e9
    # Points that are screened for the starts of a later round of climbs, and operations that this
    # may take: a narrow mode is hit by one random point in 10⁴ (four dimensions, 17 widths away).
    most_screened: int = 16384
    screening_budget: float = 1e9
    # Gradients that one climb takes, about (measured on the targets of `follmer bench`).
    gradients_per_climb: float = 400.0
    # Operations that the chains of the population should take (seconds), and may take at the most:
    # up to `max_explored` coordinates, where a minute of chains sees what curvature does not (30
    # nats on a9a), and beyond, where so few draws say less of a covariance; there too a minute
    # where no flow is likely to arrive (`flow_is_likely`). A tempering has the latter.
    chain_budget: float = 2e10
    largest_chain_budget: float = 2e12
    moderate_chain_budget: float = 4e11
    # Calls of chains: 12 take as many gradients as a usual run of NUTS (60 000).
    fewest_calls: int = 12
    most_calls: int = 96
    # Nested R-hat below which chains agree (Margossian et al. 2024, arXiv:2110.13017).
    agree: float = 1.01
    # Particles of a tempering, and the narrowest scale of its start, per coordinate.
    num_particles: int = 4096
    fewest_particles: int = 512
    narrowest_start: float = 5.0
    # Operations per gradient up to which paths and steps are not spared, and are spared a little.
    cheap_gradient: float = 3e5
    moderate_gradient: float = 2e6
    # The same for each coordinate, up to which the drift may look at the score in every step.
    cheap_per_coordinate: float = 1e4
    # Paths, and training steps, of a flow from one mode, by the cost of a gradient.
    paths: tuple[int, int, int] = (64, 16, 8)
    iterations: tuple[int, int, int] = (1000, 500, 200)
    # Adam's rate, and the coordinates from which it falls: their noise adds up.
    learning_rate: float = 1e-2
    gentle_dim: int = 50

    # HMC moves of the draws that a flow learns from, whenever they are refreshed, at most; and
    # gradients that one of all of them takes in the whole training (20 times 4096 draws of 10
    # steps). Where gradients are expensive the draws stay as the chains left them.
    refresh_moves: int = 4
    gradients_per_move: float = 8e5

    # A posterior for its weights will do with this share of effective draws, and so many nats below
    # the upper bound on ln Z; else the next rung is tried. (On posteriordb, .8 nats left a standard
    # deviation 11 % short.)
    enough_effective: float = 0.1
    near: float = 0.6

    def will_do(self, ess_fraction: float, gap: float) -> bool:
        """Whether weighted draws are good enough to stop at."""
        return ess_fraction >= self.enough_effective and not gap > self.near

    def num_climbs(self, dim: int, cost: float) -> tuple[int, int, int]:
        """Climbs of the first round, to one mode, and of all; one in too many dimensions."""
        if dim > self.max_explored:
            return 1, 1, 1
        per_climb = self.gradients_per_climb * max(cost, 1.0)
        most = int(np.clip(self.climb_budget / per_climb, 1, self.most_climbs))
        first = min(most, self.num_starts)
        to_one = np.clip(self.climb_to_one_budget / per_climb, first, self.most_climbs_to_one)
        return first, int(to_one), most

    def num_screened(self, dim: int, cost: float) -> int:
        """Points that are screened in a round: a gradient each, and products with a dense root."""
        return int(min(self.screening_budget / (cost + 8.0 * dim**2), self.most_screened))

    def num_calls(
        self, dim: int, cost: float, gradients_per_call: int, *, needed: bool = False
    ) -> int:
        """Calls of the population's chains; 0 where even a few would take too long.

        `needed` where nothing else is likely to reach the target.
        """
        per_call = gradients_per_call * max(cost, 1.0)
        large = needed or dim <= self.max_explored
        most = self.largest_chain_budget if large else self.moderate_chain_budget
        if self.fewest_calls * per_call > most:
            return 0
        return int(np.clip(self.chain_budget / per_call, self.fewest_calls, self.most_calls))

    def looks_at_scores(self, dim: int, cost: float) -> bool:
        """Whether the drift of a flow may look at the score in every step."""
        return cost <= max(self.cheap_gradient, self.cheap_per_coordinate * dim)

    def flow_is_likely(self, dim: int, cost: float, spread: float) -> bool:
        """Whether a flow that starts from the curvature is likely to arrive in many coordinates.

        It has to look at the score, and to start near: `spread` is the standard deviation of the
        log weights of the Gaussian's draws. At √(d/2), that of a normal log density itself at its
        own draws, they say nothing of each other. (A Cox process in 1600 coordinates has a
        third of it, softmax regressions of as many rows as weights 5 to 50 times as much.)
        """
        return self.looks_at_scores(dim, cost) and spread <= np.sqrt(0.5 * dim)

    def moves(self, cost: float) -> int:
        """HMC moves of the draws that a flow learns from."""
        affordable = self.moderate_chain_budget / (self.gradients_per_move * max(cost, 1.0))
        return min(int(affordable), self.refresh_moves)

    def particles(self, cost: float, gradients_per_particle: float) -> int:
        """Particles of a tempering."""
        affordable = self.moderate_chain_budget / (gradients_per_particle * max(cost, 1.0))
        return int(np.clip(affordable, self.fewest_particles, self.num_particles))

    def flow_settings(self, dim: int, cost: float) -> Mapping[str, Any]:
        """Settings of a flow in coordinates where the target is near N(0, I)."""
        settings: dict[str, Any] = {
            "num_steps": 16,
            "grid": "uniform",
            "learning_rate": self.learning_rate * min(1.0, np.sqrt(self.gentle_dim / dim)),
        }
        if not self.looks_at_scores(dim, cost):
            # Beside such a gradient more steps and a larger drift cost little; paths cost much.
            settings |= {"drift": "additive", "num_steps": 32}
            return settings | {"num_paths": 24, "num_iterations": 500}
        dense = cost + 8.0 * dim**2
        level = int(dense > self.cheap_gradient) + int(dense > self.moderate_gradient)
        paths, iterations = self.paths[level], self.iterations[level]
        return settings | {
            "drift": "score_guided",
            "num_paths": paths,
            "num_iterations": iterations,
        }


POLICY = Policy()
