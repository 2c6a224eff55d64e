"""Gradients through the path, with the drift's parameters differentiated for all times at once.

Back-propagation in the scan carries the state's cotangent alone, to the steps' moves; the moves'
dependence on the parameters is then one large, flat computation instead of many small ones.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.objectives.problem import Problem
from follmer.paths import Drift, Move, Path


def pathwise(
    drift: Drift,
    problem: Problem,
    key: PRNGKeyArray,
    running_cost: Callable[[Path], Float[Array, " paths"]],
    *,
    score_moves: bool = True,
) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
    """E[ running_cost(path) − ln f(x_k) ], reparametrised.

    Without `score_moves`, the moves are stopped inside ln q(path), which the state is not.
    """
    stopped = stop_parameters(drift)

    def loss_of(nudges: Move) -> tuple[Array, tuple[Array, Array]]:
        paths = problem.simulate(stopped, key, nudges, score_moves)
        log_terminal = problem.log_terminal(paths.end)
        log_weights = log_terminal + paths.log_ratio
        return jnp.mean(running_cost(paths) - log_terminal), (log_weights, paths.states)

    (loss, (log_weights, states)), pull = jax.value_and_grad(loss_of, has_aux=True)(
        _zero_moves(stopped, problem)
    )
    pull, states = jax.lax.stop_gradient((pull, states))
    products = jax.tree.map(jnp.vdot, pull, problem.moves(drift, states))
    work = sum(jax.tree.leaves(products))
    return loss + work - jax.lax.stop_gradient(work), log_weights


def stop_parameters(drift: Drift) -> Drift:
    """The same drift, its parameters closed to differentiation."""
    return jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if isinstance(leaf, jax.Array) else leaf, drift
    )


def _zero_moves(drift: Drift, problem: Problem) -> Move:
    diffusion = problem.diffusion
    shape = (problem.num_paths, diffusion.num_steps, diffusion.dim)
    states = jax.ShapeDtypeStruct(shape, diffusion.dtype)
    moves = jax.eval_shape(lambda x: problem.moves(drift, x), states)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), moves)
