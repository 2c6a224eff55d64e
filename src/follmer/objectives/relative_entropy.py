"""The relative-entropy estimator: the whole of F, Itô sum included, through the path."""

from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.pathwise import pathwise
from follmer.objectives.problem import Problem
from follmer.paths import Drift


def relative_entropy(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[F] = E[ Σ_j |u_j|²Δt/(2γ) + u_j·ε_j √(Δt/γ) − ln f(x_k) ]."""
    return pathwise(drift, problem, key, lambda paths: -paths.log_ratio)
