"""Records as a table for people or as JSON for programs."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from follmer.bench.running import PosteriordbRecord, Record
from follmer.tools.tables import markdown

_LEFT = {"target", "posterior", "method", "verdict", "worst", "note"}


def table(records: Iterable[Record | PosteriordbRecord]) -> str:
    """An aligned Markdown table; columns with nothing to say are left out."""
    return markdown([_cells(record) for record in records], left=_LEFT)


def as_json(measured_on: dict[str, Any], records: Sequence[Any]) -> str:
    """An object with `machine` and `results`; numbers that are not finite become null."""
    results = [
        {name: _finite(value) for name, value in record._asdict().items()} for record in records
    ]
    return json.dumps({"machine": measured_on, "results": results}, indent=1, allow_nan=False)


def _cells(record: Record | PosteriordbRecord) -> dict[str, str]:
    own = _posteriordb_cells(record) if isinstance(record, PosteriordbRecord) else _own(record)
    return {
        **own,
        "seconds": _number(record.seconds, ".1f"),
        "gradients": _number(record.gradient_evaluations, ","),
        "verdict": record.verdict or "",
        "note": record.note,
    }


def _own(record: Record) -> dict[str, str]:
    approximate = "≈ " if record.truth_is_approximate else ""
    return {
        "target": record.target,
        "dim": _number(record.dim, "d"),
        "method": record.method,
        "ELBO": _number(record.elbo, ".3f"),
        "ln Z": _number(record.log_evidence, ".3f"),
        "±": _number(record.log_evidence_se, ".3f"),
        "truth": "" if record.truth is None else f"{approximate}{record.truth:.3f}",
        "ESS": _number(record.ess_fraction, ".1%"),
        "k-hat": _number(record.khat, ".2f"),
        "modes": record.modes_found or "",
        "mode error": _number(record.mode_weight_error, ".3f"),
        "predictive": _number(record.predictive_ratio, ".2f"),
        "LPD": _number(record.log_predictive_density, ".4f"),
    }


def _posteriordb_cells(record: PosteriordbRecord) -> dict[str, str]:
    judged = record.location_error is not None
    return {
        "posterior": record.posterior,
        "dim": _number(record.dim, "d"),
        "method": record.method,
        "mean error": _number(record.location_error, ".3f"),
        "worst": record.worst or "",
        "sd ratio from": _number(record.spread_min, ".3f"),
        "to": _number(record.spread_max, ".3f"),
        "reached": ("yes" if record.reached else "no") if judged else "",
    }


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
