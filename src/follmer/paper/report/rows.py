"""Records of many seeds as one row for each method and setting, the paper's among them."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from follmer.paper.report import names
from follmer.paper.report.names import PUBLISHED
from follmer.paper.report.published import Estimate, published
from follmer.plots import METHODS

Record = Mapping[str, Any]
_SOURCES = ("auto", "paper", PUBLISHED)
_SHOWN_APART = ("case", "verdict", "notes", "error")


@dataclasses.dataclass(frozen=True)
class Row:
    """One method in one setting: `source` is our preset, or PUBLISHED for the paper's numbers."""

    case: str
    method: str
    source: str
    metrics: dict[str, Estimate]
    seeds: int = 0
    seconds: Estimate | None = None
    # How many seeds each was given to.
    verdicts: dict[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # Why seeds failed, and how many of them.
    errors: dict[str, int] = dataclasses.field(default_factory=dict)
    # The distinct values over seeds.
    settings: dict[str, list[Any]] = dataclasses.field(default_factory=dict)


class Group(NamedTuple):
    """All rows of an experiment and the metrics that any of them has."""

    experiment: str
    rows: list[Row]
    metrics: list[str]


def grouped(records: Iterable[Record]) -> list[Group]:
    """The experiments in the order in which they were run."""
    by_experiment: dict[str, list[Record]] = {}
    for record in records:
        by_experiment.setdefault(record["experiment"], []).append(record)
    return [_group(name, own) for name, own in by_experiment.items()]


def shown(estimate: Estimate | None, seeds: int | None = None) -> str:
    """Mean ± sd with the digits that the sd leaves standing; says so where seeds are missing."""
    if estimate is None:
        return ""
    partial = seeds is not None and estimate.seeds is not None and estimate.seeds < seeds
    missing = f" ({estimate.seeds} of {seeds})" if partial else ""
    mean, sd = estimate.mean, estimate.sd
    form = ".4g"
    if estimate.decimals is not None:
        form = f".{estimate.decimals}f"
    elif sd and np.isfinite([mean, sd]).all():
        form = f".{int(np.clip(1 - np.floor(np.log10(sd)), 0, 4))}f"
    spread = "" if sd is None else f" ± {sd:{form}}"
    return f"{mean:{form}}{spread}{missing}"


def _group(experiment: str, records: list[Record]) -> Group:
    by_row: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        place = (record["settings"].get("case") or "", record["method"], record["preset"])
        by_row.setdefault(place, []).append(record)
    cases = list(dict.fromkeys(case for case, _, _ in by_row))
    rows = [_row(*place, own) for place, own in by_row.items()]
    rows += [
        Row(case, method, PUBLISHED, metrics)
        for case in cases
        for method, metrics in published(experiment, case).items()
    ]
    methods = names.ordered((row.method for row in rows), METHODS)
    sources = names.ordered((row.source for row in rows), _SOURCES)
    rows.sort(key=lambda r: (cases.index(r.case), methods.index(r.method), sources.index(r.source)))
    metrics = names.ordered((name for row in rows for name in row.metrics), names.METRICS)
    return Group(experiment, rows, metrics)


def _row(case: str, method: str, preset: str, records: list[Record]) -> Row:
    metrics = dict.fromkeys(name for record in records for name in record["metrics"])
    found = {
        name: _estimate([record["metrics"].get(name) for record in records]) for name in metrics
    }
    settings = [record["settings"] for record in records]
    verdicts = Counter(one["verdict"] for one in settings if one.get("verdict"))
    notes = dict.fromkeys(note for one in settings for note in one.get("notes") or ())
    return Row(
        case,
        method,
        preset,
        {name: estimate for name, estimate in found.items() if estimate is not None},
        len(records),
        _estimate([record["seconds"] for record in records]),
        dict(verdicts),
        tuple(notes),
        dict(Counter(one["error"] for one in settings if one.get("error"))),
        _distinct(settings),
    )


def _estimate(values: list[float | None]) -> Estimate | None:
    """Of the seeds that have a value; None where none has."""
    own = np.array([value for value in values if value is not None], float)
    if not own.size:
        return None
    # Values that are not finite are shown as they are, without a warning.
    with np.errstate(invalid="ignore"):
        sd = float(own.std(ddof=1)) if own.size > 1 else None
    return Estimate(float(own.mean()), sd, own.size)


def _distinct(settings: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in settings:
        for name, value in one.items():
            if name not in _SHOWN_APART:
                found.setdefault(name, {})[json.dumps(value, sort_keys=True)] = value
    return {name: list(values.values()) for name, values in found.items()}
