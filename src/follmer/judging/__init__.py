"""How good draws are: weights, chains, an audit, simulation-based calibration, a verdict."""

from follmer.judging.chains import ChainDiagnostics, diagnose_chains
from follmer.judging.pointwise import pointwise_log_likelihood
from follmer.judging.predictions import audit_predictions, psis_loo
from follmer.judging.predictive_audit import PredictiveAudit
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
from follmer.judging.weights import (
    Answers,
    Diagnostics,
    compare_answers,
    diagnose,
    ess_fraction,
    pareto_smooth,
)

__all__ = [
    "Answers",
    "AnyAudit",
    "Audit",
    "Calibration",
    "ChainDiagnostics",
    "Diagnostics",
    "Judgement",
    "LocalAudit",
    "PredictiveAudit",
    "Verdict",
    "as_audit",
    "audit_predictions",
    "compare_answers",
    "diagnose",
    "diagnose_chains",
    "ess_fraction",
    "judge",
    "pareto_smooth",
    "pointwise_log_likelihood",
    "psis_loo",
    "sbc",
]
