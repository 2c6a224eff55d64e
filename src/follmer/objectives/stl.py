"""Sticking the landing: the gradient has no variance at the optimal drift (the paper's Theorem)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.problem import Problem
from follmer.paths import Drift


def stl(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[F] with the drift's parameters, not the state, stopped inside ln q(path)."""
    paths = problem.simulate(drift, key, "landing")
    log_weights = problem.log_terminal(paths.end) + paths.log_ratio
    return -jnp.mean(log_weights), log_weights
