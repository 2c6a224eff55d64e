"""From stored chains to a sampler: the chains' shares, and how wide a flow's Gaussians may be.

Both are told by leaving training rows out.
"""

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.judging.pointwise import pointwise_log_likelihood
from follmer.judging.predictions import judged_draws, psis_loo, rows_judged, rows_shared
from follmer.judging.stacking import loo_by_chain, stacked
from follmer.posterior.along_chains import ChainFlow, along_chains
from follmer.posterior.samplers import StoredDraws
from follmer.targets import AbstractTarget, Density, Target, as_target
from follmer.tools.keys import named_key

# Consecutive states of a Gaussian, and its width over theirs, widest first. The full width ruins
# PSIS-LOO on four UCI sets of six, and 20 states are worse on four.
_FORMS = ((10, 0.5), (10, 0.25), (5, 0.25))
# Nats per row by which a flow's PSIS-LOO may be below its chains'.
_TOLERANCE = 0.01
# Nats of log density that the isotropic floor may cost.
_FLOOR_COST = 0.1
# States at which gradients are taken for a flow's floor.
_STATES = 64
# Fewer states where gradients are expensive: operations of all of them, and how many at least. In
# so many dimensions one state tells the trace.
_GRADIENTS_COST, _FEWEST_STATES = 1e12, 8


def sampler_of(
    target: AbstractTarget,
    chains: Float[np.ndarray, "chains draws dim"],
    method: str,
    key: PRNGKeyArray,
    floor: float | None = None,
) -> ChainFlow | StoredDraws:
    """The widest flow along the chains that predicts as well as they do, else their states.

    Chains have the shares under which rows that are left out are the most likely. `floor` is
    `flow_floor` of the chains, where it is known already.
    """
    stored = StoredDraws(chains, method, exact=False)
    if target.num_data is None or getattr(target, "predictive", None) is None:
        return stored
    model = as_target(target)
    rows = rows_judged(model, named_key(key, "rows"))
    states = judged_draws(chains)
    flat = states.reshape(-1, chains.shape[-1])
    logs = pointwise_log_likelihood(model, flat, rows, progress=False)
    if not np.isfinite(logs).all():
        return stored
    shares = _shares(model, states, named_key(key, "shares"))
    floor = flow_floor(target, chains) if floor is None else floor
    if np.isfinite(floor) and chains.shape[1] >= max(size for size, _ in _FORMS):
        least = psis_loo(logs).mean - _TOLERANCE
        for size, width in _FORMS:
            equal = along_chains(target, chains, size, width, floor)
            # As many as there are states: the program for their likelihoods is there.
            fresh = named_key(key, f"draws {size}")
            draws, _ = equal.sample(len(flat), fresh, None, progress=False)
            if _loo(model, np.asarray(draws), rows) >= least:
                return along_chains(target, chains, size, width, floor, shares)
    return StoredDraws(chains, method, exact=False, shares=shares)


def _shares(
    model: Target, states: Float[np.ndarray, "chains draws dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " chains"]:
    rows = rows_shared(model, key)
    flat = states.reshape(-1, states.shape[-1])
    logs = pointwise_log_likelihood(model, flat, rows, progress=False)
    if not np.isfinite(logs).all():
        return np.full(len(states), 1.0 / len(states))
    return stacked(loo_by_chain(logs.reshape(*states.shape[:2], len(rows))))


def narrowest_flow(
    target: AbstractTarget, chains: Float[np.ndarray, "chains draws dim"], floor: float
) -> ChainFlow:
    """The flow of the last and narrowest form, however it predicts."""
    return along_chains(target, chains, *_FORMS[-1], floor)


def flow_floor(target: AbstractTarget, chains: Float[np.ndarray, "chains draws dim"]) -> float:
    """An isotropic sd that costs little: E|∇ln p|² is the trace of the curvature."""
    model, states = as_target(target), judged_draws(chains).reshape(-1, chains.shape[-1])
    count = int(np.clip(_GRADIENTS_COST / model.gradient_cost, _FEWEST_STATES, _STATES))
    chosen = np.linspace(0, len(states) - 1, min(count, len(states))).astype(int)
    gradients = Density(model)(states[chosen])[1]
    squared = float(np.mean(np.sum(gradients**2, axis=1)))
    return float(np.sqrt(2.0 * _FLOOR_COST / squared)) if squared > 0 else float("nan")


def _loo(target: Target, draws: Float[np.ndarray, "draws dim"], rows: np.ndarray) -> float:
    """PSIS-LOO per row; minus infinity where a draw gives a row no density."""
    logs = pointwise_log_likelihood(target, draws, rows, progress=False)
    return psis_loo(logs).mean if np.isfinite(logs).all() else float("-inf")
