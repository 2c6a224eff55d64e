"""Sticking the landing: the gradient has no variance at the optimal drift (the paper's Theorem)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.problem import Problem
from follmer.paths import Drift


def stl(
    drift: Drift, problem: Problem, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[F] with the drift's parameters, not the state, stopped inside ln q(path).

    That is the relative-entropy gradient less ∇_φ ln q(path) of the path taken as data: a score,
    of zero mean, evaluated for all times at once.
    """
    paths = problem.simulate(drift, key)
    log_weights = problem.log_terminal(paths.end) + paths.log_ratio
    minus_log_q = problem.log_ratio(drift, paths)
    score = minus_log_q - jax.lax.stop_gradient(minus_log_q)
    return jnp.mean(score - log_weights), log_weights
