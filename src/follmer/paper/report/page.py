"""A run as one page for the browser, with everything in it: it works offline and runs no script."""

import base64
import html
import importlib.resources
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from follmer.paper.report import names
from follmer.paper.report.footnotes import THROUGHOUT, footnotes
from follmer.paper.report.names import PUBLISHED
from follmer.paper.report.reading import Figure, Run, read_run
from follmer.paper.report.rows import Group, Row, grouped, shown
from follmer.paper.report.strips import strip, who
from follmer.paper.report.table import LEFT, cells, failures, place
from follmer.tools.storage import replacing

_NOTHING, _FAILED = "nothing measured", "failed"
_BADGES = {
    "trustworthy": ("good", "✓"),
    "use the weights": ("fair", "≈"),
    "do not use": ("bad", "✗"),
    _NOTHING: ("bad", "✗"),
    _FAILED: ("bad", "✗"),
}
# The methods that a reader asks for, the first of them last.
_LEADING = ("n_sfs", "n_sfs_decoupled")
_WIDE, _BESIDE = ' class="wide"', ' class="beside"'
_MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}


def write_page(directory: str | Path) -> Path:
    """Write report.html of a run's folder, whole or not at all; returns its path."""
    directory = Path(directory)
    page = _page(read_run(directory))
    path = directory / "report.html"
    with replacing(path) as file:
        file.write(page.encode())
    return path


def _page(run: Run) -> str:
    groups = grouped(run.records)
    known = [group.experiment for group in groups]
    strangers = [figure for figure in run.figures if figure.experiment not in known]
    sections = [_section(group, run.figures) for group in groups]
    if strangers:
        sections.append(f"<section><h2>More figures</h2>{_figures(strangers)}</section>")
    style = (importlib.resources.files("follmer.paper.report") / "page.css").read_text(
        encoding="utf-8"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>follmer: the paper's experiments</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="kicker">follmer</p>
<h1>The paper’s experiments, run again</h1>
<p class="made">{_text(run.machine["date"])} · <code>{_text(run.machine["command"])}</code></p>
<p class="lead"><b>auto</b> is follmer’s default, <b>paper</b> the authors’ setting, and
<b>{PUBLISHED}</b> what the paper reports. Numbers are means ± standard deviations over seeds.</p>
<nav>{"".join(map(_card, groups))}</nav>
</header>
<main>
{"".join(sections)}
</main>
<footer>
<h2>Throughout</h2>
{_notes(THROUGHOUT)}
<h2>Measured on</h2>
{_machine(run.machine)}
</footer>
</body>
</html>
"""


def _card(group: Group) -> str:
    title, first = names.experiment(group.experiment).title, _leading(group)
    cases = [row for row in group.rows if (row.method, row.source) == (first.method, first.source)]
    return f'<a href="#{_anchor(group)}"><span>{_text(title)}</span>{_badges(*cases)}</a>'


def _section(group: Group, figures: Iterable[Figure]) -> str:
    own = [figure for figure in figures if figure.experiment == group.experiment]
    about = names.experiment(group.experiment)
    strips = "".join(strip(group, metric) for metric in about.headline)
    parts = [
        f'<section id="{_anchor(group)}"><h2>{_text(about.title)}</h2>',
        f'<p class="what">{_text(about.what)}</p>' if about.what else "",
        _headline(group),
        f'<div class="strips">{strips}</div>' if strips else "",
        _figures(own),
        _table(group),
        _notes(footnotes(group.experiment)),
        _settings(group),
        "</section>\n",
    ]
    return "\n".join(part for part in parts if part)


def _notes(remarks: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(remark)}</li>" for remark in remarks)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _leading(group: Group) -> Row:
    """The row a reader asks for first: N-SFS in our default setting, else another of ours."""
    ours = [row for row in group.rows if row.source != PUBLISHED]
    own = [row for method in _LEADING for row in ours if row.method == method]
    return ([row for row in own if row.source == "auto"] or own or ours)[-1]


def _headline(group: Group) -> str:
    row = _leading(group)
    printed = [
        other
        for other in group.rows
        if (other.case, other.method, other.source) == (row.case, row.method, PUBLISHED)
    ]
    told = [f"{names.method(row.method)}, {row.source}{row.case and f', {row.case}'}"]
    known = [name for name in names.experiment(group.experiment).headline if name in row.metrics]
    for name in known[:1]:
        told += [f"{names.metric(name).spoken} {shown(row.metrics[name])}"]
        if printed and name in printed[0].metrics:
            told += [f"the paper has {shown(printed[0].metrics[name])}"]
    told += failures(row) if row.errors or not row.metrics else []
    first, *rest = map(_text, told)
    sentence = f"<b>{first}</b>{': ' if rest else ''}{'; '.join(rest)}."
    return f'<p class="headline">{sentence} {_badges(row)}</p>'


def _figures(figures: list[Figure]) -> str:
    if not figures:
        return ""
    return f'<div class="figures">{"".join(map(_figure, figures))}</div>'


def _figure(figure: Figure) -> str:
    # An image, not inline SVG: its names, styles and scripts stay its own.
    media = _MEDIA[Path(figure.file).suffix]
    content = base64.b64encode(figure.content).decode()
    wide = figure.width > 1.6 * figure.height
    return (
        f'<figure{_WIDE if wide else ""}><div{"" if wide else _BESIDE}><div class="frame">'
        f'<img alt="{_text(figure.title)}" width="{figure.width}" height="{figure.height}" '
        f'src="data:{media};base64,{content}"></div>'
        f"<figcaption><b>{_text(figure.title)}</b> <small>{_text(figure.preset)}</small><br>"
        f"{_text(figure.caption)}</figcaption></div></figure>"
    )


def _table(group: Group) -> str:
    rows = cells(group)
    told = [name for name in rows[0] if any(row[name] for row in rows)]
    numbers = [name for name in told if name not in LEFT]
    # Numbers may be scrolled out of sight, verdicts not.
    verdict = '<th class="verdict">verdict</th>' if "verdict" in told else ""
    head = "<th></th>" + verdict + "".join(f"<th>{_text(name)}</th>" for name in numbers)
    width = 1 + bool(verdict) + len(numbers)
    body, case = [], ""
    for row, texts in zip(group.rows, rows, strict=True):
        if row.case != case:
            case = row.case
            body.append(f'<tr class="case"><th colspan="{width}">{_text(case)}</th></tr>')
        kind = ' class="published"' if row.source == PUBLISHED else ""
        badges = f'<td class="verdict">{_badges(row)}</td>' if verdict else ""
        line = "".join(f"<td>{_text(texts[name])}</td>" for name in numbers)
        body.append(f"<tr{kind}><th>{who(row)}</th>{badges}{line}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _badges(*rows: Row) -> str:
    """A badge for each verdict on these rows, with its share of their seeds."""
    seeds, counts = sum(row.seeds for row in rows), Counter[str]()
    for row in rows:
        failed = {_FAILED: sum(row.errors.values())} if row.errors else {}
        counts.update({**row.verdicts, **failed} if row.metrics else {_NOTHING: row.seeds})
    made = []
    for verdict, count in counts.items():
        kind, sign = _BADGES.get(verdict, ("other", "·"))
        share = "" if count == seeds else f" {count} of {seeds}"
        made.append(f'<span class="badge {kind}">{sign} {_text(verdict)}{share}</span>')
    return " ".join(made)


def _settings(group: Group) -> str:
    folded = []
    for row in group.rows:
        if row.source == PUBLISHED:
            continue
        items = [
            f"<dt>{_text(name)}</dt><dd>{_text(', '.join(map(_plain, values)))}</dd>"
            for name, values in row.settings.items()
        ]
        items += [f"<dt>note</dt><dd>{_text(note)}</dd>" for note in row.notes]
        items += [f"<dt>failed</dt><dd>{_text(why)}</dd>" for why in row.errors]
        if items:
            folded.append(f"<h4>{_text(place(row))}</h4><dl>{''.join(items)}</dl>")
    if not folded:
        return ""
    return f"<details><summary>Settings and notes</summary>{''.join(folded)}</details>"


def _machine(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = {**machine, "versions": versions}
    items = (f"<dt>{_text(k)}</dt><dd>{_text(_plain(v))}</dd>" for k, v in lines.items())
    return f"<dl>{''.join(items)}</dl>"


def _anchor(group: Group) -> str:
    return _text("".join(c if c.isalnum() else "-" for c in group.experiment))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(text: str) -> str:
    return html.escape(text)
