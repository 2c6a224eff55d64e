"""A second opinion on a trained flow: its draws are moved by MCMC, and weighed again."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.diagnostics import SecondOpinion, pareto_smooth
from follmer.nsfs import NSFS
from follmer.warmup import hmc
from follmer.warmup.start import gradient_cost

# Arithmetic that the moves may cost: some seconds.
_BUDGET = 1e11
_MAX_DIM = 2000
_NUM_CHAINS = 256
_MOVES = (4, 60)


def second_opinion(
    algorithm: NSFS,
    parameters: PyTree,
    x: Float[Array, "draws dim"],
    log_weights: Float[Array, " draws"],
    key: PRNGKeyArray,
) -> SecondOpinion | None:
    """Move a flow's weighted draws and weigh them again; None where that would cost too much."""
    target = algorithm.target
    if target.dim > _MAX_DIM:
        return None
    per_move = gradient_cost(target) * hmc.NUM_LEAPFROG
    num_chains = int(np.clip(_BUDGET / (per_move * _MOVES[1]), 64, _NUM_CHAINS))
    num_moves = int(np.clip(_BUDGET / (per_move * num_chains), 0, _MOVES[1]))
    if num_moves < _MOVES[0]:
        return None
    choice_key, move_key, weigh_key = jax.random.split(key, 3)
    if not np.isfinite(np.asarray(log_weights)).all():
        return None
    weights = np.exp(pareto_smooth(log_weights)[0])
    mean = weights @ np.asarray(x, float)
    deviations = np.asarray(x, float) - mean
    covariance = (deviations.T * weights) @ deviations
    sd = np.sqrt(np.diag(covariance))
    chosen = jax.random.choice(choice_key, len(x), (num_chains,), p=jnp.asarray(weights, x.dtype))

    @jax.jit
    def moved_and_weighed(x: Float[Array, "chains dim"], data: PyTree) -> tuple[Array, Array]:
        # Shrunk towards independence: few effective draws make a poor covariance.
        shrunk = 0.5 * covariance + 0.5 * np.diag(sd**2 + 1e-12)
        factor = jnp.asarray(np.linalg.cholesky(shrunk), x.dtype)
        step = jnp.asarray(1.0 / target.dim**0.25, x.dtype)
        moved = hmc.move(
            lambda x: target.log_density(x, data), x, factor, step, num_moves, move_key
        ).particles
        keys = jax.random.split(weigh_key, num_chains)
        return moved, algorithm.bridge_log_weights(parameters, moved, keys, data)

    moved, bridged = moved_and_weighed(x[chosen], target.data)
    bridged = np.asarray(bridged, float)
    shifts = (np.asarray(moved, float).mean(axis=0) - mean) / sd
    ess = 1.0 / np.sum(weights**2)
    return SecondOpinion(
        eubo=float(bridged.mean()),
        eubo_se=float(bridged.std() / np.sqrt(num_chains)),
        mean_shift=float(np.abs(shifts).max()),
        mean_shift_noise=float(
            np.sqrt((1.0 / num_chains + 1.0 / ess) * (1.0 + 2.0 * np.log(target.dim)))
        ),
    )
