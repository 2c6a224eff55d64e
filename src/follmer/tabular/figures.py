"""The figures of a model's page: calibration, predictions beside what came true, dependence."""

from typing import TYPE_CHECKING

import numpy as np

from follmer import plots
from follmer.columns import Outcome
from follmer.columns.kinds import Boolean, Categorical, Date
from follmer.metrics import CalibrationCurve
from follmer.tabular.dependence import Dependence
from follmer.tabular.model import Predicted
from follmer.tabular.scores import LEVELS, Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Curves of classes that are told apart; the most frequent ones are shown.
_MOST_CURVES = 5
_COLOURS = [plots.METHODS[name].colour for name in ("n_sfs", "sgld", "mc_sfs", "nuts", "sgd")]
# Standard errors of a share that a calibrated model stays within, 19 times in 20.
_SIGMAS = 1.96
# Between points of different classes, where neighbouring categories are 1 apart.
_APART = 0.12
# Longer labels are cut.
_LONG = 14


@plots.in_our_look
def quantile_calibration(scores: Scores) -> bytes:
    """The share of y below each predicted quantile, as an SVG."""
    made, ((axes,),) = plots.figure()
    levels = np.array(LEVELS)
    chance = _SIGMAS * np.sqrt(levels * (1.0 - levels) / scores.num_rows)
    axes.fill_between(
        levels,
        levels - chance,
        levels + chance,
        color=plots.METHODS["exact"].colour,
        alpha=0.2,
        linewidth=0,
        label="chance, if calibrated",
    )
    axes.plot([0, 1], [0, 1], "--", color=plots.METHODS["exact"].colour, linewidth=1)
    axes.plot(levels, scores.below, marker="o", color=_COLOURS[0], label="held-out rows")
    axes.set(xlabel="predicted probability", ylabel="share of rows below", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left")
    return plots.rendered(made)


@plots.in_our_look
def class_calibration(curve: CalibrationCurve) -> bytes:
    """How often the most probable class came true, by its probability, as an SVG."""
    made, ((axes,),) = plots.figure()
    plots.calibration(axes, {"n_sfs": curve})
    axes.get_legend().remove()
    return plots.rendered(made)


@plots.in_our_look
def predicted_and_true(found: Predicted, y: np.ndarray, name: str) -> bytes:
    """What came true by the predicted mean, with 90 % intervals, as an SVG."""
    made, ((axes,),) = plots.figure()
    low, high = LEVELS.index(0.05), LEVELS.index(0.95)
    lower, upper = found.quantiles[:, low], found.quantiles[:, high]
    # Where there are many rows, some tell as much as all.
    some = np.linspace(0, len(y) - 1, min(len(y), 200)).astype(int)
    axes.vlines(found.mean[some], lower[some], upper[some], color=_COLOURS[0], alpha=0.25, lw=1.5)
    inside = (y >= lower) & (y <= upper)
    for chosen, colour, label in (
        (inside, _COLOURS[0], "inside its 90 % interval"),
        (~inside, _COLOURS[1], "outside"),
    ):
        shown = some[chosen[some]]
        axes.plot(found.mean[shown], y[shown], "o", ms=3, mew=0, color=colour, label=label)
    ends = [min(found.mean[some].min(), y[some].min()), max(found.mean[some].max(), y[some].max())]
    axes.plot(ends, ends, "--", color=plots.METHODS["exact"].colour, linewidth=1)
    axes.set(xlabel=f"predicted mean of {_short(name)}", ylabel=f"{_short(name)}")
    axes.legend(loc="upper left")
    return plots.rendered(made)


@plots.in_our_look
def dependence(found: Dependence, outcome: Outcome, ends: tuple[float, float]) -> bytes:
    """The average prediction by the value of one column, with its band, as an SVG.

    `ends` are the lowest and highest value that any band reaches.
    """
    made, ((axes,),) = plots.figure()
    curves = list(range(found.mean.shape[1]))
    names = [f"mean of {_short(outcome.name)}"]
    if outcome.is_classes:
        # Two classes have one curve, the second's.
        names = list(outcome.classes[-1:] if len(curves) == 1 else outcome.classes)
        order = np.argsort(-found.mean.mean(axis=0))[:_MOST_CURVES]
        curves = sorted(order.tolist())
    for place, i in enumerate(curves):
        # Side by side, where points would hide each other.
        aside = _APART * (place - 0.5 * (len(curves) - 1))
        _curve(axes, found, i, _COLOURS[place], names[i], aside)
    what = (
        f"probability of {_short(names[0])}" if len(names) == 1 and outcome.is_classes else names[0]
    )
    if len(names) > 1:
        what = "probability"
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    margin = 0.04 * (ends[1] - ends[0]) or 0.5
    limits = (ends[0] - margin, ends[1] + margin)
    axes.set(xlabel=_short(found.column.name, 40), ylabel=what, ylim=limits)
    return plots.rendered(made)


def _curve(axes: "Axes", found: Dependence, i: int, colour: str, label: str, aside: float) -> None:
    mean, lower, upper = found.mean[:, i], found.lower[:, i], found.upper[:, i]
    if isinstance(found.column, Categorical | Boolean):
        places = np.arange(len(mean))
        axes.errorbar(
            places + aside,
            mean,
            yerr=[np.maximum(mean - lower, 0), np.maximum(upper - mean, 0)],
            fmt="o",
            color=colour,
            capsize=3,
            label=_short(label),
        )
        told = ["no", "yes"] if isinstance(found.column, Boolean) else list(found.values)
        turned = 60 if len(told) > 6 else 0
        axes.set_xticks(places, [_short(str(one)) for one in told], rotation=turned)
        axes.set_xlim(-0.5, len(mean) - 0.5)
        return
    values = found.values
    if isinstance(found.column, Date):
        values = np.datetime64(0, "s") + (86_400 * values).astype("timedelta64[s]")
        axes.tick_params(axis="x", rotation=30)
    axes.fill_between(values, lower, upper, color=colour, alpha=0.22, linewidth=0)
    axes.plot(values, mean, color=colour, label=_short(label))


def _short(text: str, length: int = _LONG) -> str:
    text = text if len(text) <= length else f"{text[: length - 1]}…"
    # A dollar sign would begin a formula.
    return text.replace("$", r"\$")
