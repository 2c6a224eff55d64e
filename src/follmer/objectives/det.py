"""DET, the paper's plain N-SFS: the Itô sum, of zero mean, is dropped."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.problem import Problem
from follmer.paths import Drift


def det(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[ Σ_j |u_j|²Δt/(2γ) − ln f(x_k) ], differentiated through the path."""
    paths = problem.simulate(drift, key, "kl")
    log_terminal = problem.log_terminal(paths.end)
    return jnp.mean(paths.kl - log_terminal), log_terminal + paths.log_ratio
