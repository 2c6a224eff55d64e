"""Records as a table for people or as JSON for programs, with what they were measured on."""

import datetime
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from follmer.bench.running import PosteriordbRecord, Record

_PACKAGES = ("follmer", "jax", "numpyro", "optax", "numpy")
_LEFT = {"target", "posterior", "method", "verdict", "worst", "note"}


def machine(command: str) -> dict[str, Any]:
    """The command, the date and what the numbers depend on."""
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}, JAX on {jax.default_backend()}",
        "precision": f"{jnp.finfo(jnp.result_type(float)).bits} bit",
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }


def header(measured_on: dict[str, Any]) -> str:
    """One line for each thing the numbers depend on."""
    versions = ", ".join(f"{name} {version}" for name, version in measured_on["versions"].items())
    lines = {**measured_on, "versions": versions}
    return "\n".join(f"{name + ':':<11}{value}" for name, value in lines.items())


def table(records: Iterable[Record | PosteriordbRecord]) -> str:
    """An aligned Markdown table; columns with nothing to say are left out."""
    rows = [_cells(record) for record in records]
    if not rows:
        return ""
    headings = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in headings}

    def line(cells: dict[str, str]) -> str:
        padded = [
            f"{cells[name]:<{widths[name]}}" if name in _LEFT else f"{cells[name]:>{widths[name]}}"
            for name in headings
        ]
        return f"| {' | '.join(padded)} |"

    rules = {
        name: "-" * widths[name] if name in _LEFT else "-" * (widths[name] - 1) + ":"
        for name in headings
    }
    return "\n".join([line({name: name for name in headings}), line(rules), *map(line, rows)])


def as_json(measured_on: dict[str, Any], records: Sequence[Record | PosteriordbRecord]) -> str:
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
        "note": record.note.replace("|", "\\|"),
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
