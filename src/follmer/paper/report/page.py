"""A run as one page for the browser, with everything in it: it works offline and runs no script."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from follmer.pages import badge, facts, notes, page, picture, plain, text
from follmer.pages.parts import FAILED, NOTHING
from follmer.paper.report import names
from follmer.paper.report.footnotes import THROUGHOUT, footnotes
from follmer.paper.report.names import PUBLISHED
from follmer.paper.report.reading import Figure, Run, read_run
from follmer.paper.report.rows import Group, Row, grouped, shown
from follmer.paper.report.strips import strip, who
from follmer.paper.report.table import LEFT, cells, failures, place
from follmer.tools.storage import replacing

# The methods that a reader asks for, the first of them last.
_LEADING = ("n_sfs", "n_sfs_decoupled")


def write_page(directory: str | Path) -> Path:
    """Write report.html of a run's folder, whole or not at all; returns its path."""
    directory = Path(directory)
    content = _page(read_run(directory))
    path = directory / "report.html"
    with replacing(path) as file:
        file.write(content.encode())
    return path


def _page(run: Run) -> str:
    groups = grouped(run.records)
    known = [group.experiment for group in groups]
    strangers = [figure for figure in run.figures if figure.experiment not in known]
    sections = [_section(group, run.figures) for group in groups]
    if strangers:
        sections.append(f"<section><h2>More figures</h2>{_figures(strangers)}</section>")
    header = f"""<p class="kicker">follmer</p>
<h1>The paper’s experiments, run again</h1>
<p class="made">{text(run.machine["date"])} · <code>{text(run.machine["command"])}</code></p>
<p class="lead"><b>auto</b> is follmer’s default, <b>paper</b> the authors’ setting, and
<b>{PUBLISHED}</b> what the paper reports. Numbers are means ± standard deviations over seeds.</p>
<nav>{"".join(map(_card, groups))}</nav>"""
    footer = f"""<h2>Throughout</h2>
{notes(THROUGHOUT)}
<h2>Measured on</h2>
{_machine(run.machine)}"""
    return page(
        title="follmer: the paper's experiments",
        header=header,
        main="".join(sections),
        footer=footer,
    )


def _card(group: Group) -> str:
    title, first = names.experiment(group.experiment).title, _leading(group)
    cases = [row for row in group.rows if (row.method, row.source) == (first.method, first.source)]
    return f'<a href="#{_anchor(group)}"><span>{text(title)}</span>{_badges(*cases)}</a>'


def _section(group: Group, figures: Iterable[Figure]) -> str:
    own = [figure for figure in figures if figure.experiment == group.experiment]
    about = names.experiment(group.experiment)
    strips = "".join(strip(group, metric) for metric in about.headline)
    parts = [
        f'<section id="{_anchor(group)}"><h2>{text(about.title)}</h2>',
        f'<p class="what">{text(about.what)}</p>' if about.what else "",
        _headline(group),
        f'<div class="strips">{strips}</div>' if strips else "",
        _figures(own),
        _table(group),
        notes(footnotes(group.experiment)),
        _settings(group),
        "</section>\n",
    ]
    return "\n".join(part for part in parts if part)


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
    first, *rest = map(text, told)
    sentence = f"<b>{first}</b>{': ' if rest else ''}{'; '.join(rest)}."
    return f'<p class="headline">{sentence} {_badges(row)}</p>'


def _figures(figures: list[Figure]) -> str:
    if not figures:
        return ""
    return f'<div class="figures">{"".join(map(_figure, figures))}</div>'


def _figure(figure: Figure) -> str:
    return picture(figure.content, figure.title, figure.caption, figure.preset)


def _table(group: Group) -> str:
    rows = cells(group)
    told = [name for name in rows[0] if any(row[name] for row in rows)]
    numbers = [name for name in told if name not in LEFT]
    # Numbers may be scrolled out of sight, verdicts not.
    verdict = '<th class="verdict">verdict</th>' if "verdict" in told else ""
    head = "<th></th>" + verdict + "".join(f"<th>{text(name)}</th>" for name in numbers)
    width = 1 + bool(verdict) + len(numbers)
    body, case = [], ""
    for row, texts in zip(group.rows, rows, strict=True):
        if row.case != case:
            case = row.case
            body.append(f'<tr class="case"><th colspan="{width}">{text(case)}</th></tr>')
        kind = ' class="published"' if row.source == PUBLISHED else ""
        badges = f'<td class="verdict">{_badges(row)}</td>' if verdict else ""
        line = "".join(f"<td>{text(texts[name])}</td>" for name in numbers)
        body.append(f"<tr{kind}><th>{who(row)}</th>{badges}{line}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _badges(*rows: Row) -> str:
    """A badge for each verdict on these rows, with its share of their seeds."""
    seeds, counts = sum(row.seeds for row in rows), Counter[str]()
    for row in rows:
        failed = {FAILED: sum(row.errors.values())} if row.errors else {}
        counts.update({**row.verdicts, **failed} if row.metrics else {NOTHING: row.seeds})
    made = []
    for verdict, count in counts.items():
        made.append(badge(verdict, "" if count == seeds else f" {count} of {seeds}"))
    return " ".join(made)


def _settings(group: Group) -> str:
    folded = []
    for row in group.rows:
        if row.source == PUBLISHED:
            continue
        items = [
            f"<dt>{text(name)}</dt><dd>{text(', '.join(map(plain, values)))}</dd>"
            for name, values in row.settings.items()
        ]
        items += [f"<dt>note</dt><dd>{text(note)}</dd>" for note in row.notes]
        items += [f"<dt>failed</dt><dd>{text(why)}</dd>" for why in row.errors]
        if items:
            folded.append(f"<h4>{text(place(row))}</h4><dl>{''.join(items)}</dl>")
    if not folded:
        return ""
    return f"<details><summary>Settings and notes</summary>{''.join(folded)}</details>"


def _machine(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return facts({**machine, "versions": versions})


def _anchor(group: Group) -> str:
    return text("".join(c if c.isalnum() else "-" for c in group.experiment))
