"""Many short Markov chains from the same few starts, until they agree."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.mcmc.hmc import MOVES_PER_CALL, NUM_LEAPFROG, Wide, advance, as_chains
from follmer.mcmc.mixtures import safe_cholesky
from follmer.mcmc.nested import nested_rhat
from follmer.targets import Density
from follmer.tools.clock import NEVER
from follmer.tools.programs import bound

# Chains of a site: groups that share a start, and chains in each (nested R-hat,
# Margossian et al. 2024, arXiv:2110.13017).
NUM_GROUPS, GROUP_SIZE = 8, 8
# Calls of some moves each: until the covariance is read, and again; that draws are kept of.
WARM_CALLS, KEPT_CALLS = 3, 32
# Calls that are made even where the time is up.
_FEWEST_CALLS = 2
# Draws per coordinate from which their covariance is better than the curvature.
_ENOUGH_EACH = 4
# Draws that are kept of one site.
_MAX_KEPT = 8192
# Gradients in one call: every leapfrog step of every chain takes one.
GRADIENTS_PER_CALL = NUM_GROUPS * GROUP_SIZE * MOVES_PER_CALL * NUM_LEAPFROG


def run_chains(
    density: Density,
    points: Float[np.ndarray, "groups dim"],
    factor: Float[np.ndarray, "dim dim"],
    key: PRNGKeyArray,
    agree: float,
    max_calls: int,
    kept_calls: int,
    stop: Callable[[], bool] = NEVER,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draws of chains that go on until they agree, or for so long; gradients there; R-hat."""
    dim, dtype = density.dim, density.dtype
    starts = np.repeat(points, GROUP_SIZE * NUM_GROUPS // len(points), axis=0)
    whole = Wide(*jax.device_put((np.zeros(dim, dtype), np.ones(dim, dtype), np.ones((), dtype))))
    stretch = jax.device_put(np.asarray(factor, dtype))
    values, gradients = density(starts)
    chains = as_chains(density.target, starts, values, gradients)
    kept: list[np.ndarray] = []
    slopes: list[np.ndarray] = []
    renewals = [WARM_CALLS * 2**i for i in range(16)]
    end, move = max_calls, bound(advance, density.target)
    for call in range(max_calls):
        if call == end or (call >= _FEWEST_CALLS and stop()):
            break
        moved = move(chains, whole, stretch, key, np.asarray(call))
        density.gradient_evaluations += GRADIENTS_PER_CALL
        chains = moved.chains
        kept.append(np.asarray(moved.places, float))
        slopes.append(np.asarray(moved.gradients, float))
        if call + 1 in renewals and call + 1 + kept_calls <= max_calls and call + 1 < end:
            # The newest moves tell where the mass is; what came before is forgotten.
            recent = np.concatenate(kept[len(kept) // 2 :])
            agreed = worst_rhat(recent) < agree
            if end == max_calls and agreed and call + 1 > WARM_CALLS:
                end = min(call + 1 + kept_calls, max_calls)
            factor = covariance_factor(recent, factor)
            stretch = jax.device_put(np.asarray(factor, dtype))
            kept, slopes = [], []
    first = len(kept) // 3 if end == max_calls else 0
    draws, gradients = np.concatenate(kept[first:]), np.concatenate(slopes[first:])
    thinning = max(1, len(draws) * len(starts) // _MAX_KEPT)
    return draws[::thinning], gradients[::thinning], worst_rhat(draws)


def covariance_factor(
    places: Float[np.ndarray, "moves chains dim"], factor: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """A square root of the draws' covariance, shrunk to the present one where they are few."""
    flat = places.reshape(-1, places.shape[-1])
    if not (flat.std(axis=0) > 0).all():
        return factor
    # In the present coordinates, where independence is the safe guess.
    z = np.linalg.solve(factor, (flat - flat.mean(axis=0)).T)
    count, dim = z.shape[1], z.shape[0]
    trust = count / (count + _ENOUGH_EACH * dim)
    empirical = z @ z.T / count
    shrunk = trust * empirical + (1.0 - trust) * np.diag(np.diag(empirical))
    return factor @ safe_cholesky(shrunk)


def worst_rhat(draws: Float[np.ndarray, "draws chains dim"]) -> float:
    """Nested R-hat of the worst coordinate; infinite where chains never moved."""
    rhat = nested_rhat(draws.swapaxes(0, 1), NUM_GROUPS, chance_removed=True)
    return float(np.max(np.where(draws.var(axis=0).max(axis=0) > 0, rhat, np.inf)))
