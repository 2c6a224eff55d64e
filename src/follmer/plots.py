"""The figures of demo and experiments: numpy arrays in, drawn on given axes in one look."""

import functools
import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from jaxtyping import Float, Int

from follmer.errors import InputError, optional_module
from follmer.metrics import CalibrationCurve
from follmer.tools.storage import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from follmer.posterior.comparison import Comparison

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Method(NamedTuple):
    """How a method is called and coloured, everywhere."""

    label: str
    colour: str


# The colours of Okabe and Ito, which colour-blind people tell apart.
METHODS = {
    "n_sfs": Method("N-SFS", "#0072b2"),
    "n_sfs_calibrated": Method("N-SFS, calibrated", "#332288"),
    "n_sfs_stl": Method("N-SFS (STL)", "#56b4e9"),
    "n_sfs_decoupled": Method("N-SFS, decoupled", "#6a51a3"),
    "mc_sfs": Method("MC-SFS", "#009e73"),
    "ensemble": Method("ensemble of chains", "#117733"),
    "ensemble_cold": Method("ensemble, temperature 0.1", "#44aa99"),
    "points": Method("points, averaged", "#882255"),
    "points_fan_in": Method("points, fan-in prior", "#aa4499"),
    "sgld": Method("SGLD", "#d55e00"),
    "sgd": Method("SGD", "#e69f00"),
    "nuts": Method("NUTS", "#cc79a7"),
    "exact": Method("exact", "#767676"),
}
_MARKERS = "osD^vPX"
_INK, _PAPER, _GRID, _TRUTH = "#24292f", "#ffffff", "#d8dee4", "#57606a"
# What the same colours become where the reader's screen is dark.
_DARK = {
    _INK: "#d5dae0",
    _PAPER: "#161a20",
    _GRID: "#343b44",
    _TRUTH: "#9aa4af",
    METHODS["n_sfs"].colour: "#3a9ae0",
    METHODS["n_sfs_decoupled"].colour: "#a58fe0",
}
_LOOK = {
    "axes.axisbelow": True,
    "axes.edgecolor": _INK,
    "axes.facecolor": _PAPER,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlesize": "medium",
    "figure.facecolor": _PAPER,
    "font.size": 10.0,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.dpi": 120,
    "svg.fonttype": "none",
    # The same figure is the same file.
    "svg.hashsalt": "follmer",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_WIDTH, _HEIGHT = 5.2, 3.9  # inches of one panel
# More dots than this are heavy as shapes and become pixels.
_MANY = 1000
# The keys of `Posterior.history` that hold one value per evaluation.
_EVALUATIONS = ("evaluation_iteration", "evaluation_elbo", "evaluation_ess")
# Contours at these falls below the top hold 99, 86 and 40 % of a Gaussian.
_FALLS = np.array([4.6, 2.0, 0.5])


def in_our_look(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The function, drawing in the one look of all figures."""

    @functools.wraps(function)
    def styled(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _matplotlib().rc_context(_LOOK):
            return function(*args, **kwargs)

    return styled


@in_our_look
def figure(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (_WIDTH, _HEIGHT)
) -> "tuple[Figure, np.ndarray]":
    """A figure and its panels, an array of `rows` by `columns` axes of that size in inches."""
    made = _matplotlib("matplotlib.figure").Figure(
        figsize=(size[0] * columns, size[1] * rows), layout="constrained"
    )
    return made, made.subplots(rows, columns, squeeze=False)


@in_our_look
def panels(
    titles: Sequence[str],
    *,
    columns: int | None = None,
    size: tuple[float, float] = (_WIDTH, _HEIGHT),
) -> "tuple[Figure, list[Axes]]":
    """A figure with a panel under each title, in rows of two, or of three where there are many."""
    columns = columns or min(len(titles), 2 if len(titles) <= 4 else 3)
    made, grid = figure(-(-len(titles) // columns), columns, size=size)
    axes = list(grid.flat)
    for spare in axes[len(titles) :]:
        spare.remove()
    for panel, title in zip(axes, titles, strict=False):
        panel.set_title(title)
    return made, axes[: len(titles)]


@in_our_look
def save(figure: "Figure", path: Path) -> Path:
    """Write the figure, whole or not at all, in the format of the path's suffix.

    An SVG has its text as text and turns dark where the reader's screen is dark.
    """
    content = rendered(figure, path.suffix.lstrip("."))
    with replacing(path) as file:
        file.write(content)
    return path


@in_our_look
def rendered(figure: "Figure", kind: str = "svg") -> bytes:
    """The figure as a file of that kind would hold it."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        if kind == "svg":
            # Text stays text: what our fonts do not have, the reader's have.
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        # Dates would make every file a new one.
        figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return _turning_dark(content.getvalue()) if kind == "svg" else content.getvalue()


@in_our_look
def calibration(axes: "Axes", curves: Mapping[str, CalibrationCurve]) -> None:
    """Accuracy by confidence, a curve per method, with the share of points in each bin above.

    Bars are intervals of one standard error (Wilson's), for so many points in a bin.
    """
    shares = axes.inset_axes((0.0, 1.04, 1.0, 0.22), sharex=axes)
    axes.plot([0, 1], [0, 1], "--", color=_TRUTH, linewidth=1, label="calibrated")
    lowest = 1.0
    for (_, curve), (label, colour), marker in each_method(curves):
        filled = curve.counts > 0
        x, y = curve.confidences[filled], curve.accuracies[filled]
        axes.plot(x, y, marker=marker, color=colour, label=label)
        bars = wilson(y, curve.counts[filled])
        axes.errorbar(x, y, yerr=bars, fmt="none", color=colour, linewidth=1.1, capsize=2.5)
        edges = np.linspace(0, 1, len(curve.counts) + 1)
        total = max(curve.counts.sum(), 1)
        shares.stairs(curve.counts / total, edges, color=colour, linewidth=1.3)
        lowest = min([lowest, *edges[:-1][filled], *y])
    shares.set(ylabel="share", ylim=(0, None))
    shares.tick_params(labelbottom=False)
    limits = (max(lowest - 0.03, 0.0), 1.02)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=limits, ylim=limits)
    legend(axes)


def wilson(
    share: Float[np.ndarray, " bins"], count: Int[np.ndarray, " bins"]
) -> Float[np.ndarray, "2 bins"]:
    """How far one standard error reaches below and above a share of so many points.

    Wilson's interval, which has a length where the share is 0 or 1.
    """
    middle = (share + 0.5 / count) / (1.0 + 1.0 / count)
    half = np.sqrt(share * (1.0 - share) / count + 0.25 / count**2) / (1.0 + 1.0 / count)
    return np.maximum([share - (middle - half), middle + half - share], 0.0)


@in_our_look
def training(
    axes_pair: "Iterable[Axes]", histories: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """ELBO and ESS of each `Posterior.history` by iteration, on two axes."""
    elbo_axes, ess_axes = axes_pair
    elbos = [np.zeros(0)]
    for (name, history), (label, colour), marker in each_method(histories):
        missing = [key for key in _EVALUATIONS if key not in history]
        if missing:
            raise InputError(
                f"the history of {name} has no {', '.join(missing)}.",
                cause="a sampler that is not trained by fit",
            )
        iteration, elbo, ess = (np.asarray(history[key]) for key in _EVALUATIONS)
        shape = None if len(iteration) > 40 else marker
        elbo_axes.plot(iteration, elbo, color=colour, label=label, marker=shape)
        ess_axes.plot(iteration, 100 * ess, color=colour, label=label, marker=shape)
        elbos.append(elbo)
    _show_late(elbo_axes, elbos)
    elbo_axes.set(xlabel="iteration", ylabel="ELBO")
    ess_axes.set(xlabel="iteration", ylabel="effective sample size (%)", ylim=(0, 100))
    legend(ess_axes)


@in_our_look
def predictive_band(
    axes: "Axes",
    x: Float[np.ndarray, " points"],
    mean: Float[np.ndarray, " points"],
    lower: Float[np.ndarray, " points"],
    upper: Float[np.ndarray, " points"],
    *,
    points: tuple[np.ndarray, np.ndarray] | None = None,
    truth: Float[np.ndarray, " points"] | None = None,
    method: str = "n_sfs",
    band: str = "90 % interval",
) -> None:
    """The predictive mean and interval by x, over the data `points` (x, y) and the true curve."""
    order = np.argsort(x)
    colour = METHODS[method].colour
    axes.fill_between(
        x[order], lower[order], upper[order], color=colour, alpha=0.22, linewidth=0, label=band
    )
    axes.plot(x[order], mean[order], color=colour, label=f"{METHODS[method].label}, mean")
    if truth is not None:
        axes.plot(x[order], truth[order], "--", color=_TRUTH, linewidth=1.2, label="truth")
    if points is not None:
        dots(axes, *points, color=_INK, label="data")
    axes.set(xlabel="x", ylabel="y")
    legend(axes)


@in_our_look
def class_contours(
    axes: "Axes",
    grid_x: Float[np.ndarray, " columns"],
    grid_y: Float[np.ndarray, " rows"],
    probability: Float[np.ndarray, "rows columns"],
    points: Float[np.ndarray, "points 2"],
    labels: Int[np.ndarray, " points"],
) -> None:
    """The predictive probability of class 1 over the plane, with the data of both classes."""
    levels = np.linspace(0, 1, 11)
    # The pale middle of the map, so that the dots stand out.
    colours = _matplotlib().colormaps["PuOr_r"](np.linspace(0.26, 0.74, len(levels) - 1))
    filled = axes.contourf(grid_x, grid_y, probability, levels, colors=colours)
    # Without edges of their own colour, gaps show between the bands.
    filled.set_edgecolor("face")
    axes.contour(grid_x, grid_y, probability, [0.5], colors="black", linewidths=1.2)
    for label, colour in ((0, "#3f1d75"), (1, "#9a3d00")):
        chosen = points[labels == label]
        dots(axes, chosen[:, 0], chosen[:, 1], color=colour, label=f"class {label}")
    axes.grid(False)
    axes.set(xlabel="x₀", ylabel="x₁", xlim=grid_x[[0, -1]], ylim=grid_y[[0, -1]])
    axes.set_aspect("equal")
    colour_bar = axes.figure.colorbar(filled, ax=axes, ticks=[0, 0.5, 1], shrink=0.8)
    # The ends of the scale have the colours of the dots, so it is their legend too.
    colour_bar.set_ticklabels(["0: class 0", "0.5", "1: class 1"])
    colour_bar.set_label("probability of class 1")


@in_our_look
def scatter_over_contours(
    axes: "Axes",
    draws: Float[np.ndarray, "draws 2"],
    grid_x: Float[np.ndarray, " columns"],
    grid_y: Float[np.ndarray, " rows"],
    log_density: Float[np.ndarray, "rows columns"],
    *,
    method: str = "n_sfs",
) -> None:
    """Draws over contours of the true log density."""
    levels = np.max(log_density) - _FALLS
    axes.contour(
        grid_x, grid_y, log_density, levels, colors=_TRUTH, linewidths=1.1, linestyles="solid"
    )
    draws = np.asarray(draws)
    label, colour = METHODS[method]
    dots(axes, draws[:, 0], draws[:, 1], color=colour, label=f"draws of {label}")
    axes.set(xlabel="x₀", ylabel="x₁", xlim=(grid_x[0], grid_x[-1]), ylim=(grid_y[0], grid_y[-1]))
    axes.set_aspect("equal")


@in_our_look
def error_by_dimension(
    axes: "Axes",
    dims: Iterable[int],
    errors: Mapping[str, tuple[Float[np.ndarray, " dims"], Float[np.ndarray, " dims"]]],
    *,
    error: str = "mean absolute error",
    published: Mapping[str, Float[np.ndarray, " dims"]] | None = None,
) -> None:
    """Mean and standard deviation of each method's error by dimension, on logarithmic axes.

    Dashed are the methods' published errors; nan where there is none.
    """
    dims = np.asarray(list(dims))
    for (_, (mean, sd)), (label, colour), marker in each_method(errors):
        mean, sd = np.asarray(mean, float), np.asarray(sd, float)
        # A bar below zero has no place on a logarithmic axis.
        below = np.minimum(sd, 0.9 * mean)
        axes.errorbar(
            dims, mean, yerr=[below, sd], marker=marker, color=colour, label=label, capsize=2.5
        )
    for (_, mean), (label, colour), _ in each_method(published or {}):
        axes.plot(dims, mean, "--", color=colour, linewidth=1.1, label=f"{label}, published")
    axes.set(xscale="log", yscale="log", xlabel="dimension", ylabel=error)
    axes.set_xticks(dims, [str(dim) for dim in dims], minor=False)
    axes.set_xticks([], minor=True)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:g}")
    # Within a decade, powers of ten alone would leave the axis without numbers.
    axes.yaxis.set_minor_formatter("{x:g}" if high < 10.0 * low else "")
    legend(axes)


@in_our_look
def comparison(axes_pair: "Iterable[Axes]", compared: "Comparison") -> None:
    """How far each model of `follmer.compare` is behind the best, in nats with two standard errors.

    ln Z on the first axes, leave-one-out densities on the second; what is not known is left out.
    """
    evidence, left_out = axes_pair
    places = {name: i for i, name in enumerate(compared.names)}
    for axes, order, difference, label in (
        (evidence, compared.by_evidence, compared.log_bayes_factor, "ln Z"),
        (left_out, compared.by_leave_one_out, compared.elpd_difference, "elpd, leave-one-out"),
    ):
        found = [difference(name, order[0]) for name in order]
        axes.axvline(0.0, linestyle="--", color=_TRUTH, linewidth=1)
        axes.errorbar(
            [gap for gap, _ in found],
            [places[name] for name in order],
            xerr=[2.0 * error for _, error in found],
            fmt="o",
            color=METHODS["n_sfs"].colour,
            capsize=3,
        )
        axes.set(xlabel=f"{label}, less the best one's", ylim=(len(places) - 0.5, -0.5))
        axes.set_yticks(list(places.values()), list(places))


@in_our_look
def composite(axes: "Axes", shares: Float[np.ndarray, "rows columns 3"] | None) -> None:
    """Shares of three materials as red, green and blue; None says that the sampler diverged."""
    axes.set_axis_off()
    if shares is None:
        axes.text(0.5, 0.5, "diverged", ha="center", va="center", transform=axes.transAxes)
        return
    axes.imshow(np.clip(shares, 0, 1), interpolation="nearest")


def each_method(named: Mapping[str, Any]) -> "Iterable[tuple[tuple[str, Any], Method, str]]":
    """Every name with its values, its look and its marker; what is no method gets a free colour."""
    free = iter([m.colour for name, m in METHODS.items() if name not in named] * len(named))
    looks = [METHODS.get(name) or Method(name, next(free)) for name in named]
    places = {name: place for place, name in enumerate(METHODS)}
    markers = [_MARKERS[places.get(name, i) % len(_MARKERS)] for i, name in enumerate(named)]
    return zip(named.items(), looks, markers, strict=True)


def dots(axes: "Axes", x: np.ndarray, y: np.ndarray, *, color: str, label: str) -> None:
    """Small dots; very many become pixels."""
    size, alpha = (2.6, 0.55) if len(x) > 300 else (3.5, 0.75)
    made = axes.plot(x, y, "o", ms=size, mew=0, alpha=alpha, color=color, label=label, zorder=3)
    made[0].set_rasterized(len(x) > _MANY)


def _show_late(axes: "Axes", runs: Iterable[np.ndarray]) -> None:
    """Let the first evaluations, often thousands below the rest, fall out of sight."""
    late = np.concatenate([values[len(values) // 4 :] for values in runs])
    late = late[np.isfinite(late)]
    if late.size:
        margin = 0.08 * np.ptp(late) or 1.0
        axes.set_ylim(late.min() - margin, late.max() + margin)


def legend(axes: "Axes") -> None:
    """A legend beside the axes."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def _turning_dark(svg: bytes) -> bytes:
    rules = "".join(
        f'[style*="{name}: {light}"]{{{name}:{dark}!important}}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    return svg.replace(b"<defs>", style.encode() + b"<defs>", 1)


def _matplotlib(name: str = "matplotlib") -> ModuleType:
    return optional_module(name, extra="plots", purpose="drawing")
