"""The relative-entropy estimator: the whole of F, Itô sum included, through the path."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.problem import Problem
from follmer.paths import Drift


def relative_entropy(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[F] = E[ Σ_j |u_j|²Δt/(2γ) + u_j·ε_j √(Δt/γ) − ln f(x_k) ]."""
    paths = problem.simulate(drift, key, "log_ratio")
    log_weights = problem.log_terminal(paths.end) + paths.log_ratio
    return -jnp.mean(log_weights), log_weights
