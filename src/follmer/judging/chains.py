"""How far Markov chains agree, and how much their draws repeat each other."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Coordinates of stored chains that are looked at; all of them up to this many.
_MAX_COORDINATES = 256


class ChainDiagnostics(NamedTuple):
    """How far stored Markov chains agree and how much their draws repeat each other.

    `rhat` and `ess_fraction` are those of the worst coordinate (rank-normalised R-hat; bulk ESS as
    a share of `num_draws`, the draws of all chains); nan where there is one chain, or too few
    draws. `exact` says whether the chains' kernel leaves the target as it is; `divergences` counts
    trajectories that a Hamiltonian kernel could not follow. Chains know nothing of the evidence.
    """

    num_chains: int
    num_draws: int
    rhat: float
    ess_fraction: float
    exact: bool
    divergences: int = 0


def diagnose_chains(
    draws: Float[np.ndarray, "chains draws dim"], *, exact: bool, divergences: int = 0
) -> ChainDiagnostics:
    """R-hat and bulk ESS (ArviZ) of the worst of up to 256 evenly spaced coordinates."""
    from arviz_stats.base import array_stats

    num_chains, length, dim = draws.shape
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, _MAX_COORDINATES)).astype(int))
    values = np.asarray(draws[:, :, chosen], float)
    rhat, ess = float("nan"), float("nan")
    # Fewer draws cannot be split into two chains of two.
    if length >= 4:
        # Chains that never moved divide by zero; the result says so.
        with np.errstate(all="ignore"):
            ess = float(np.min(array_stats.ess(values, chain_axis=0, draw_axis=1)))
            if num_chains > 1:
                rhat = float(np.max(array_stats.rhat(values, chain_axis=0, draw_axis=1)))
    total = num_chains * length
    return ChainDiagnostics(num_chains, total, rhat, ess / total, exact, divergences)
