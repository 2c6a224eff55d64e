"""One estimator of the control cost per file. An objective is a function

    (drift, problem, key) -> (loss, log_weights)

so a user's own is passed like the library's; or one that learns from a memory, an `AbstractReplay`.
"""

from typing import Any

from follmer.objectives.adjoint_matching import AdjointMatching
from follmer.objectives.bridge_matching import BridgeMatching
from follmer.objectives.det import det
from follmer.objectives.log_variance import LogVariance
from follmer.objectives.problem import Objective, Problem
from follmer.objectives.relative_entropy import relative_entropy
from follmer.objectives.replay import AbstractReplay, is_replay
from follmer.objectives.stl import stl
from follmer.tools.checks import named_or_own

OBJECTIVES: dict[str, Objective | AbstractReplay] = {
    "det": det,
    "relative_entropy": relative_entropy,
    "stl": stl,
    "log_variance": LogVariance(),
    "adjoint_matching": AdjointMatching(),
}


def as_objective(objective: Any) -> Objective | AbstractReplay:
    """The objective of that name, or the user's own."""
    if is_replay(objective):
        return objective
    form = "a function (drift, problem, key) -> (loss, log_weights)"
    return named_or_own("objective", objective, OBJECTIVES, form)


__all__ = [
    "OBJECTIVES",
    "AbstractReplay",
    "AdjointMatching",
    "BridgeMatching",
    "LogVariance",
    "Objective",
    "Problem",
    "as_objective",
    "det",
    "relative_entropy",
    "stl",
]
