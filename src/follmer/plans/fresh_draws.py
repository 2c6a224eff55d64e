"""From stored chains back to a flow: how wide its Gaussians may be, by leaving rows out."""

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.judging.pointwise import pointwise_log_likelihood
from follmer.judging.predictions import judged_draws, psis_loo, rows_judged
from follmer.posterior.along_chains import ChainFlow, along_chains
from follmer.targets import AbstractTarget, Density, Target, as_target
from follmer.tools.keys import named_key

# Consecutive states of a Gaussian, and its width over theirs, widest first. The full width ruins
# PSIS-LOO on four UCI sets of six, and 20 states are worse on four.
_FORMS = ((10, 0.5), (10, 0.25), (5, 0.25))
# Nats per row by which a flow's PSIS-LOO may be below its chains'.
_TOLERANCE = 0.01
# Nats of log density that the isotropic floor may cost.
_FLOOR_COST = 0.1
# Draws by which a flow is compared, and states at which gradients are taken for its floor.
_DRAWS, _STATES = 1024, 64
# Fewer states where gradients are expensive: operations of all of them, and how many at least. In
# so many dimensions one state tells the trace.
_GRADIENTS_COST, _FEWEST_STATES = 1e12, 8


def flow_along(
    target: AbstractTarget, chains: Float[np.ndarray, "chains draws dim"], key: PRNGKeyArray
) -> ChainFlow | None:
    """The widest flow along the chains that predicts as well as they do; None where none does."""
    if target.num_data is None or getattr(target, "predictive", None) is None:
        return None
    if chains.shape[1] < max(size for size, _ in _FORMS):
        return None
    model = as_target(target)
    rows = rows_judged(model, named_key(key, "rows"))
    states = judged_draws(chains).reshape(-1, chains.shape[-1])
    own = _loo(model, states, rows)
    floor = _floor(model, states)
    if not np.isfinite([own, floor]).all():
        return None
    for size, width in _FORMS:
        flow = along_chains(target, chains, size, width, floor)
        draws, _ = flow.sample(_DRAWS, named_key(key, f"draws {size}"), None, progress=False)
        if _loo(model, np.asarray(draws), rows) >= own - _TOLERANCE:
            return flow
    return None


def narrowest_flow(
    target: AbstractTarget, chains: Float[np.ndarray, "chains draws dim"]
) -> ChainFlow:
    """The flow of the last and narrowest form, however it predicts."""
    states = judged_draws(chains).reshape(-1, chains.shape[-1])
    return along_chains(target, chains, *_FORMS[-1], _floor(as_target(target), states))


def _loo(target: Target, draws: Float[np.ndarray, "draws dim"], rows: np.ndarray) -> float:
    """PSIS-LOO per row; minus infinity where a draw gives a row no density."""
    logs = pointwise_log_likelihood(target, draws, rows, progress=False)
    return psis_loo(logs).mean if np.isfinite(logs).all() else float("-inf")


def _floor(target: Target, states: Float[np.ndarray, "states dim"]) -> float:
    """An isotropic sd that costs little: E|∇ln p|² is the trace of the curvature."""
    count = int(np.clip(_GRADIENTS_COST / target.gradient_cost, _FEWEST_STATES, _STATES))
    chosen = np.linspace(0, len(states) - 1, min(count, len(states))).astype(int)
    gradients = Density(target)(states[chosen])[1]
    squared = float(np.mean(np.sum(gradients**2, axis=1)))
    return float(np.sqrt(2.0 * _FLOOR_COST / squared)) if squared > 0 else float("nan")
