"""Sticking the landing: the gradient has no variance at the optimal drift (the paper's Theorem)."""

from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.pathwise import pathwise
from follmer.objectives.problem import Problem
from follmer.paths import Drift


def stl(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[F] with the drift's parameters, not the state, stopped inside ln q(path).

    That is the relative-entropy gradient less the path's score ∇_φ ln q(path), of zero mean.
    """
    return pathwise(drift, problem, key, lambda paths: -paths.log_ratio, score_moves=False)
