"""DET, the paper's plain N-SFS: the Itô sum, of zero mean, is dropped."""

from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.pathwise import pathwise
from follmer.objectives.problem import Problem
from follmer.paths import Drift


def det(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[ Σ_j |u_j|²Δt/(2γ) − ln f(x_k) ], differentiated through the path."""
    return pathwise(drift, problem, key, lambda paths: paths.kl)
