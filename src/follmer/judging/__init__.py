"""How good draws are: weights, chains, an audit, simulation-based calibration, a verdict."""

from follmer.judging.diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    LocalOpinion,
    Opinion,
    SecondOpinion,
    Verdict,
    as_opinion,
    diagnose,
    diagnose_chains,
    ess_fraction,
    pareto_smooth,
    verdict,
)
from follmer.judging.sbc import Calibration, sbc

__all__ = [
    "Calibration",
    "ChainDiagnostics",
    "Diagnostics",
    "LocalOpinion",
    "Opinion",
    "SecondOpinion",
    "Verdict",
    "as_opinion",
    "diagnose",
    "diagnose_chains",
    "ess_fraction",
    "pareto_smooth",
    "sbc",
    "verdict",
]
