"""A plan: where training starts, and why."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from follmer.nsfs import NSFS
from follmer.objectives import BridgeMatching
from follmer.plans.policy import POLICY
from follmer.posterior.samplers import AbstractSampler
from follmer.targets import AbstractTarget


class Plan(NamedTuple):
    """Coordinates in which the target is near N(0, I), settings that suit it, and why, in words.

    With a `sampler` nothing is left to train; with `draws` of the target, in the plan's
    coordinates, training learns from them.
    """

    rung: str
    target: AbstractTarget
    settings: Mapping[str, Any]
    why: str
    sampler: AbstractSampler | None = None
    draws: Float[Array, "draws dim"] | None = None
    notes: tuple[str, ...] = ()  # what a user should know of the way

    def algorithm(self, options: Mapping[str, Any]) -> NSFS:
        """The algorithm to train; what the user set stands."""
        settings = dict(self.settings)
        if self.draws is not None:
            moves = POLICY.moves(self.target.gradient_cost)
            settings["objective"] = BridgeMatching(self.draws, moves=moves)
        return NSFS(self.target, **{**settings, **options})
