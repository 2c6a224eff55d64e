"""docs/benchmarks.md, written anew from the records that are kept beside it.

follmer bench NAMES --json > docs/results/bench/FILE.json
python -m benchmarks.estimators
python -m benchmarks.search
python -m benchmarks.nested
python -m benchmarks.page
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.estimators import table as estimators_table
from benchmarks.search import SearchRecord
from benchmarks.search import table as search_table
from follmer.bench.networks import NetworkRecord
from follmer.bench.networks import table as networks_table
from follmer.bench.running import PosteriordbRecord, Record
from follmer.bench.table import table
from follmer.bench.targets import CASES
from follmer.bench.verdicts import VerdictRecord, verdict_table
from follmer.tools.tables import header

DOCS = Path(__file__).parent.parent / "docs"
RECORDS = DOCS / "results" / "bench"
PAGE, WORDS = DOCS / "benchmarks.md", DOCS / "benchmarks_words.md"
# A line of the words in whose place a file's records go: <!-- records: modes -->
_MARK = re.compile(r"<!-- ([^:]+): (.+) -->")
_KINDS: dict[str, Any] = {
    "verdicts": (VerdictRecord, verdict_table),
    "spread_mixtures": (VerdictRecord, verdict_table),
    "search": (SearchRecord, search_table),
    "posteriordb": (PosteriordbRecord, table),
    "networks": (NetworkRecord, networks_table),
    "networks_power": (NetworkRecord, networks_table),
    "networks_protein": (NetworkRecord, networks_table),
    "networks_others": (NetworkRecord, networks_table),
    "networks_classes": (NetworkRecord, networks_table),
    "estimators": (NetworkRecord, estimators_table),
}


def page() -> str:
    """The words, with every file's table in its place."""
    return filled(WORDS, {"records": section, "beside": beside})


def filled(words: Path, tables: Mapping[str, Callable[[str], str]]) -> str:
    """A page's words, with what the table of its kind tells in the place of each mark."""
    lines = []
    for line in words.read_text().splitlines():
        mark = _MARK.fullmatch(line)
        lines.append(tables[mark[1]](mark[2]) if mark else line)
    return "\n".join(lines) + "\n"


def section(name: str) -> str:
    """What one file's records were measured on, and their table."""
    stored = _stored(name)
    kind, told = _KINDS.get(name, (Record, table))
    records = [kind(**_with_present_truth(record)) for record in stored["results"]]
    return _under_header(stored, itemised(told(records)))


def beside(name: str) -> str:
    """Records of networks by others, and the default's on the same splits."""
    stored = _stored(name)
    theirs = [NetworkRecord(**record) for record in stored["results"]]
    files = [file for file, (_, told) in _KINDS.items() if told is networks_table]
    found = [NetworkRecord(**record) for file in files for record in _stored(file)["results"]]
    splits = {(one.set, one.split) for one in theirs}
    ours = [one for one in found if one.method == "follmer" and (one.set, one.split) in splits]
    return _under_header(stored, networks_table([*theirs, *ours]))


def _stored(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text())


def _under_header(stored: Mapping[str, Any], text: str) -> str:
    return f"```\n{header(stored['machine'])}\n```\n\n{text}"


def _with_present_truth(record: dict[str, Any]) -> dict[str, Any]:
    """The record beside the reference evidence of today, where its truth is not exact."""
    if not record.get("truth_is_approximate"):
        return record
    return {**record, "truth": CASES[record["target"]].log_evidence}


def itemised(text: str) -> str:
    """Lines that stand together become a list: Markdown would run them into one."""
    parts = [part.splitlines() for part in text.split("\n\n")]
    plain = [len(lines) > 1 and not lines[0].startswith("|") for lines in parts]
    return "\n\n".join(
        "\n".join(f"- {line}" for line in lines) if listed else "\n".join(lines)
        for lines, listed in zip(parts, plain, strict=True)
    )


def main() -> None:
    PAGE.write_text(page())
    print(PAGE)


if __name__ == "__main__":
    main()
