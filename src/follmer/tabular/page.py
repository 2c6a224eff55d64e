"""A model of a table as one page for the browser: verdict, calibration, columns, dependence."""

from collections.abc import Callable
from pathlib import Path

from follmer import metrics
from follmer.columns.kinds import AbstractColumn, Boolean, Categorical
from follmer.pages import badge, facts, notes, page, picture, text
from follmer.tabular import figures
from follmer.tabular.dependence import BAND, dependences
from follmer.tabular.files import header_of
from follmer.tabular.importance import Importance, importances
from follmer.tabular.model import TableModel, predictions
from follmer.tabular.scores import LEVELS
from follmer.tabular.words import meaning, scored, verdict
from follmer.tools.storage import replacing

# Columns whose dependence is shown, at most, and the fall in nats from which it is worth it.
_MOST_SHOWN, _WORTH = 6, 0.001


def write_page(
    model: TableModel, path: str | Path, tell: Callable[[str], object] = lambda words: None
) -> Path:
    """Write the model's page, whole or not at all; returns its path."""
    path = Path(path)
    tell("shuffling columns")
    ranked = importances(model)
    content = _page(model, ranked, tell)
    with replacing(path) as file:
        file.write(content.encode())
    return path


def _page(model: TableModel, ranked: list[Importance], tell: Callable[[str], object]) -> str:
    told, outcome = model.facts, model.outcome
    title = f"{outcome.name} of {told['file']}"
    header = f"""<p class="kicker">follmer</p>
<h1>{text(title)}</h1>
<p class="made">{text(outcome.task)}, {text(outcome.why)} · {told["model"]} model ·
{told["training rows"]} rows fitted, {told["held-out rows"]} held out · seed {told["seed"]}</p>
<p class="lead">{badge(model.verdict)} {text(meaning(model.verdict))}</p>"""
    tell("averaging over rows")
    sections = [_verdict(model), _calibration(model), _matter(model, ranked)]
    sections += [_dependence(model, ranked), _columns(model)]
    footer = f"<h2>Where it comes from</h2>{facts(told)}"
    return page(title=f"follmer: {title}", header=header, main="\n".join(sections), footer=footer)


def _section(title: str, what: str, *parts: str) -> str:
    said = f'<p class="what">{what}</p>' if what else ""
    return f"<section><h2>{text(title)}</h2>{said}{''.join(parts)}</section>"


def _verdict(model: TableModel) -> str:
    posterior = model.estimator.posterior_
    tried = [f"{one.rung}: {one.why} ({one.verdict})" for one in posterior.plan]
    folded = [f"<li>{text(line)}</li>" for line in (*tried, *posterior.notes)]
    summary = "<summary>How the posterior was reached</summary>"
    more = f"<details>{summary}<ul>{''.join(folded)}</ul></details>"
    headline = f'<p class="headline">{text(verdict(header_of(model)))}</p>'
    return _section("Verdict", "", headline, more if folded else "")


def _calibration(model: TableModel) -> str:
    lines = dict(scored(header_of(model)))
    if model.scores is None:
        return _section("Held-out rows", text(lines["held out"]) + ".")
    what = (
        f"{model.scores.num_rows} rows were held out: the model has not seen them. “Without any "
        "column” is a model that predicts the same for every row."
    )
    y = model.rows.y
    if model.outcome.is_classes:
        found = predictions(model.estimator, model.rows.features)
        curve = metrics.calibration_curve(found.probabilities, y.astype(int))
        pictures = picture(
            figures.class_calibration(curve),
            "Calibration",
            "How often the most probable class came true, by the probability it was given; above, "
            "the share of rows. A calibrated model is on the dashed line.",
        )
    else:
        found = predictions(model.estimator, model.rows.features, levels=LEVELS)
        pictures = picture(
            figures.quantile_calibration(model.scores),
            "Calibration",
            "The share of rows that came out below each predicted quantile. At each, a calibrated "
            "model stays in the grey band 19 times in 20; flatter than the dashed line is too "
            "sure, steeper too timid.",
        ) + picture(
            figures.predicted_and_true(found, y, model.outcome.name),
            "Predicted and true",
            "Each row by its predicted mean, with its 90 % interval.",
        )
    return _section("Held-out rows", what, _table(lines), f'<div class="figures">{pictures}</div>')


def _table(lines: dict[str, str]) -> str:
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(words)}</dd>" for name, words in lines.items())
    return f'<dl class="scores">{rows}</dl>'


def _matter(model: TableModel, ranked: list[Importance]) -> str:
    which = "held-out rows" if model.held_out else "training rows"
    what = (
        f"How much worse {which} are predicted, in nats per row, where the cells of one column are "
        "shuffled among the rows. Columns that tell the same share what they are worth."
    )
    widest = max([one.fall + one.sd for one in ranked] + [1e-9])
    lines = []
    for one in ranked:
        width = 100 * max(one.fall, 0.0) / widest
        lines.append(
            f'<span class="name">{text(one.name)}</span><span class="track">'
            f'<i class="bar" style="left:0;width:{width:.2f}%"></i>'
            f'<i class="dot" style="left:{width:.2f}%"></i></span>'
            f'<span class="value">{one.fall:.3f} <small>± {one.sd:.3f}</small></span>'
        )
    return _section("Columns that matter", what, f'<div class="lines own">{"".join(lines)}</div>')


def _dependence(model: TableModel, ranked: list[Importance]) -> str:
    chosen = [one.name for one in ranked if one.fall >= _WORTH][:_MOST_SHOWN]
    if not chosen:
        return _section("Partial dependence", "No column matters enough to show how.")
    what = (
        "What is predicted on average over rows, where one column has the same value in all. "
        f"The band holds {BAND:.0%} of the posterior’s draws: it is what is not known of the "
        "average, without the noise of single rows."
    )
    found = dependences(model, chosen)
    # One scale for all, so that columns can be compared.
    ends = min(one.lower.min() for one in found), max(one.upper.max() for one in found)
    made = [
        picture(figures.dependence(one, model.outcome, ends), one.column.name, _caption(one.column))
        for one in found
    ]
    return _section("Partial dependence", what, f'<div class="figures pairs">{"".join(made)}</div>')


def _caption(column: AbstractColumn) -> str:
    if isinstance(column, Categorical):
        rest = f", {column.rest} rare ones are not shown" if column.rest else ""
        return f"{len(column.levels)} categories{rest}."
    if isinstance(column, Boolean):
        return "No and yes."
    return "Between the 2 % and 98 % quantiles of the rows."


def _columns(model: TableModel) -> str:
    used = {
        column.name: column.kind
        + (f", {column.missing:.1%} missing" if column.missing else "")
        + (f", {len(column.levels)} categories" if isinstance(column, Categorical) else "")
        for column in model.schema.columns
    }
    dropped = {one.name: one.why for one in model.schema.dropped}
    left = f"<h3>Left out</h3>{facts(dropped)}" if dropped else ""
    return _section("Columns", "", notes(model.remarks), f"<h3>Used</h3>{facts(used)}", left)
