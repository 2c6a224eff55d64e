"""One estimator of the control cost per file. An objective is a function

    (drift, problem, key) -> (loss, log_weights)

so a user's own is passed like the library's.
"""

from typing import Any

from follmer.checks import named_or_own
from follmer.objectives.det import det
from follmer.objectives.log_variance import LogVariance
from follmer.objectives.problem import Objective, Problem
from follmer.objectives.relative_entropy import relative_entropy
from follmer.objectives.stl import stl

OBJECTIVES: dict[str, Objective] = {
    "det": det,
    "relative_entropy": relative_entropy,
    "stl": stl,
    "log_variance": LogVariance(),
}


def as_objective(objective: Any) -> Objective:
    """The objective of that name, or the user's own function."""
    form = "a function (drift, problem, key) -> (loss, log_weights)"
    return named_or_own("objective", objective, OBJECTIVES, form)


__all__ = [
    "OBJECTIVES",
    "LogVariance",
    "Objective",
    "Problem",
    "as_objective",
    "det",
    "relative_entropy",
    "stl",
]
