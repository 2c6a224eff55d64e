"""One estimator of the control cost per file. An objective has `init`, `refresh` and `loss`;

a function (drift, problem, key) -> (loss, log_weights) is one without a memory.
"""

from typing import Any

from follmer.objectives.abstract import AbstractObjective, FromFunction
from follmer.objectives.adjoint_matching import AdjointMatching
from follmer.objectives.bridge_matching import BridgeMatching
from follmer.objectives.det import det
from follmer.objectives.log_variance import LogVariance
from follmer.objectives.problem import Problem
from follmer.objectives.relative_entropy import relative_entropy
from follmer.objectives.stl import stl
from follmer.tools.checks import named_or_own

OBJECTIVES: dict[str, AbstractObjective] = {
    "det": FromFunction(det),
    "relative_entropy": FromFunction(relative_entropy),
    "stl": FromFunction(stl),
    "log_variance": LogVariance(),
    "adjoint_matching": AdjointMatching(),
}


def as_objective(objective: Any) -> AbstractObjective:
    """The objective of that name, or the user's own."""
    if isinstance(objective, AbstractObjective):
        return objective
    form = "a function (drift, problem, key) -> (loss, log_weights)"
    found = named_or_own("objective", objective, OBJECTIVES, form)
    return found if isinstance(found, AbstractObjective) else FromFunction(found)


def objective_name(objective: AbstractObjective) -> str:
    """The name of an objective of the library; "custom" for any other."""
    names = [name for name, one in OBJECTIVES.items() if one is objective]
    return names[0] if names else "custom"


__all__ = [
    "OBJECTIVES",
    "AbstractObjective",
    "AdjointMatching",
    "BridgeMatching",
    "FromFunction",
    "LogVariance",
    "Problem",
    "as_objective",
    "det",
    "objective_name",
    "relative_entropy",
    "stl",
]
