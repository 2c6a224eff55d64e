"""How good draws are: weights, chains, an audit, simulation-based calibration, a verdict."""

from follmer.judging.chains import ChainDiagnostics, diagnose_chains
from follmer.judging.sbc import Calibration, sbc
from follmer.judging.verdict import (
    AnyAudit,
    Audit,
    Judgement,
    LocalAudit,
    Verdict,
    as_audit,
    judge,
)
from follmer.judging.weights import Diagnostics, diagnose, ess_fraction, pareto_smooth

__all__ = [
    "AnyAudit",
    "Audit",
    "Calibration",
    "ChainDiagnostics",
    "Diagnostics",
    "Judgement",
    "LocalAudit",
    "Verdict",
    "as_audit",
    "diagnose",
    "diagnose_chains",
    "ess_fraction",
    "judge",
    "pareto_smooth",
    "sbc",
]
