"""docs/experiments.md, written anew from the records of the paper's experiments.

    python -m benchmarks.experiments_page

Lines of docs/experiments_words.md in whose place tables go name the folders of docs/results that
hold the rows, the metrics, and where not all are meant, or in another order, the cases:

    <!-- rows: a9a a9a_paper | accuracy ece -->
    <!-- rows: mnist | accuracy ece | test set -->
    <!-- by case: linear_regression | predictive_mean_mae -->
    <!-- runs: linear_regression -->

The second kind has a row for each method and setting, and a column for each case: of a metric, or
of `seconds` or `verdict`. The last lists the commands, which the first kind does by itself.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.page import DOCS, filled
from follmer.paper.report import names
from follmer.paper.report.rows import Row, grouped, shown
from follmer.paper.report.table import heading, verdicts
from follmer.tools.tables import markdown

PAGE, WORDS = DOCS / "experiments.md", DOCS / "experiments_words.md"
RESULTS = DOCS / "results"
MADE = re.compile(r"(?P<day>\S+) \S+ UTC, commit (?P<commit>\S+): (?P<command>.*)", re.DOTALL)
_LEFT = {"case", "method", "setting", "verdict"}


def page() -> str:
    """The words, with every table in its place."""
    return filled(WORDS, {"rows": by_row, "by case": by_case, "runs": runs})


def by_row(asked: str) -> str:
    """A table with a line for each case, method and setting, and the runs that made it."""
    folders, metrics, cases = _parts(asked)
    records = _records(folders, cases)
    rows = _rows(records)
    several = len({row.case for row in rows}) > 1
    table = [
        {
            **({"case": row.case} if several else {}),
            **_whose(row),
            "seeds": str(row.seeds or ""),
            "verdict": _told(row, "verdict"),
            **{heading(name): _told(row, name) for name in metrics},
            "seconds": _told(row, "seconds"),
        }
        for row in rows
        if any(name in row.metrics for name in metrics) or row.errors
    ]
    return f"{markdown(table, left=_LEFT)}\n\n{_made_by(records)}"


def by_case(asked: str) -> str:
    """A table with a line for each method and setting: one thing over the cases."""
    folders, (what,), cases = _parts(asked)
    rows = _rows(_records(folders, cases))
    cases = list(dict.fromkeys(row.case for row in rows))
    lines: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if _told(row, what):
            lines.setdefault((row.method, row.source), {})[row.case] = row
    table = [
        {
            **_whose(next(iter(own.values()))),
            **{case: _told(own[case], what) if case in own else "" for case in cases},
        }
        for own in lines.values()
    ]
    return markdown(table, left={*_LEFT, *(cases if what == "verdict" else ())})


def runs(asked: str) -> str:
    """The commands that made the rows of these folders."""
    return _made_by(_records(asked.split(), ()))


def _made_by(records: Iterable[dict[str, Any]]) -> str:
    """Which run each row is of, a line for each command, commit and day."""
    found: dict[tuple[str, str, str], dict[str, set[int]]] = {}
    for record in records:
        told = MADE.fullmatch(record["settings"]["made"])
        assert told, record["settings"]["made"]
        own = found.setdefault((told["command"], told["commit"], told["day"]), {})
        name = f"{names.method(record['method'])} ({record['preset']})"
        own.setdefault(name, set()).add(record["seed"])
    return "\n".join(
        f"- {_listed(own)}: `{command}`, commit {commit}, {day}"
        for (command, commit, day), own in found.items()
    )


def _listed(seeds_of: dict[str, set[int]]) -> str:
    """Names of rows, with their seeds where these differ."""
    if len({frozenset(seeds) for seeds in seeds_of.values()}) == 1:
        return ", ".join(seeds_of)
    return ", ".join(
        f"{name} seed{'s' * (len(seeds) > 1)} {' '.join(map(str, sorted(seeds)))}"
        for name, seeds in seeds_of.items()
    )


def _parts(asked: str) -> tuple[list[str], list[str], list[str]]:
    folders, metrics, *cases = (part.strip() for part in asked.split("|"))
    return folders.split(), metrics.split(), [one.strip() for one in ",".join(cases).split(",")]


def _records(folders: Sequence[str], cases: Sequence[str]) -> list[dict[str, Any]]:
    """Those of all folders, each with the run that made it; by case, where cases are named."""
    found = []
    for folder in folders:
        run = json.loads((RESULTS / folder / "run.json").read_text())
        for record in json.loads((RESULTS / folder / "results.json").read_text()):
            settings = {"made": told_of(run), **record["settings"]}
            if not any(cases) or settings["case"] in cases:
                found.append({**record, "settings": settings})
    return sorted(found, key=lambda one: cases.index(one["settings"]["case"]) if any(cases) else 0)


def told_of(run: Mapping[str, Any]) -> str:
    """The run of a folder, as a record tells its own."""
    return f"{run['date']}, commit {run.get('commit') or 'unknown'}: {run['command']}"


def _rows(records: Iterable[dict[str, Any]]) -> list[Row]:
    (group,) = grouped(records)
    return group.rows


def _whose(row: Row) -> dict[str, str]:
    return {"method": names.method(row.method), "setting": row.source}


def _told(row: Row, what: str) -> str:
    """A metric of a row, its seconds or its verdict."""
    if what == "seconds":
        return "" if row.seconds is None else f"{row.seconds.mean:,.0f}"
    if what == "verdict":
        failed = sum(row.errors.values())
        told = [verdicts(row)] if row.verdicts else []
        return ", ".join([*told, *([f"{failed} of {row.seeds} failed"] if failed else [])])
    return shown(row.metrics.get(what), row.seeds or None)


def main() -> None:
    PAGE.write_text(page())
    print(PAGE)


if __name__ == "__main__":
    main()
