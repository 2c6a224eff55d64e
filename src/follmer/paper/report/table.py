"""The comparison with the paper, for the terminal."""

from collections.abc import Iterable

from follmer.paper.report import names
from follmer.paper.report.footnotes import THROUGHOUT, footnotes
from follmer.paper.report.rows import Group, Record, Row, grouped, shown
from follmer.tools.tables import markdown

LEFT = {"case", "method", "setting", "verdict"}


def comparison(records: Iterable[Record]) -> str:
    """A Markdown table for each experiment: mean ± sd over seeds, the paper's numbers beside ours.

    A row is a case, a method and a setting: our preset `auto` or `paper`, or `published` for what
    the paper reports.
    """
    sections = [_section(group) for group in grouped(records)]
    return "\n\n".join([*sections, "## Throughout", _listed(THROUGHOUT)]) if sections else ""


def cells(group: Group) -> list[dict[str, str]]:
    """A dictionary per row, the same columns in each."""
    return [_cells(row, group.metrics) for row in group.rows]


def verdicts(row: Row) -> str:
    """The verdicts of a row's seeds, counted where they differ."""
    if len(row.verdicts) == 1:
        return next(iter(row.verdicts))
    return ", ".join(f"{name} ({count} of {row.seeds})" for name, count in row.verdicts.items())


def place(row: Row) -> str:
    return ", ".join(part for part in (names.method(row.method), row.source, row.case) if part)


def failures(row: Row) -> list[str]:
    """How many of a row's seeds failed and why, or that nothing was measured."""
    failed = [f"{count} of {row.seeds} failed: {why}" for why, count in row.errors.items()]
    return failed if row.metrics else ["nothing measured", *(row.errors or row.notes)]


def _cells(row: Row, metrics: list[str]) -> dict[str, str]:
    return {
        "case": row.case,
        "method": names.method(row.method),
        "setting": row.source,
        "seeds": str(row.seeds or ""),
        **{heading(name): shown(row.metrics.get(name), row.seeds or None) for name in metrics},
        "seconds": "" if row.seconds is None else f"{row.seconds.mean:,.1f}",
        "verdict": verdicts(row),
    }


def heading(metric: str) -> str:
    about = names.metric(metric)
    return f"{about.label} {about.better}".strip()


def _section(group: Group) -> str:
    failed = [
        ": ".join([place(row), *failures(row)])
        for row in group.rows
        if row.errors or not row.metrics
    ]
    parts = [
        f"## {names.experiment(group.experiment).title}",
        markdown(cells(group), left=LEFT),
        _listed([*failed, *footnotes(group.experiment)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _listed(remarks: Iterable[str]) -> str:
    return "\n".join(f"- {remark}" for remark in remarks)
