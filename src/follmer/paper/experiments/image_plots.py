"""The figures of the experiments on images: small images, curves by angle, draws of weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from follmer.errors import optional_module
from follmer.plots import METHODS, dots, each_method, in_our_look, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SMALL = 1.5  # inches of a small image


@in_our_look
def image_grid(count: int, *, columns: int) -> "tuple[Figure, list[Axes]]":
    """A figure with small panels for images with titles of three lines, in rows of `columns`."""
    rows = -(-count // columns)
    made = optional_module("matplotlib.figure", extra="plots", purpose="drawing").Figure(
        figsize=(_SMALL * columns, 1.4 * _SMALL * rows), layout="constrained"
    )
    axes = list(made.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[count:]:
        spare.remove()
    return made, axes[:count]


@in_our_look
def small_image(
    axes: "Axes", image: Float[np.ndarray, "channels rows columns"], title: str
) -> None:
    """An image of one channel in greys, or of three in colour, in its own range."""
    low, high = float(np.min(image)), float(np.max(image))
    shown = (np.moveaxis(image, 0, -1) - low) / max(high - low, 1e-12)
    axes.set_axis_off()
    axes.imshow(shown.squeeze(-1) if shown.shape[-1] == 1 else shown, cmap="gray_r")
    axes.set_title(title, fontsize="x-small")


@in_our_look
def by_angle(
    axes: "Axes", degrees: np.ndarray, curves: Mapping[str, Float[np.ndarray, " angles"]]
) -> None:
    """A curve per method over the angle by which images are turned."""
    for (_, values), (label, colour), marker in each_method(curves):
        axes.plot(degrees, values, marker=marker, color=colour, label=label)
    axes.set(xlabel="angle (degrees)", ylim=(0, None))
    axes.set_xticks(degrees)
    legend(axes)


@in_our_look
def traces(
    axes: "Axes", places: np.ndarray, values: Float[np.ndarray, "chains states"], *, label: str
) -> None:
    """A line per chain over its states."""
    for own in values:
        axes.plot(places, own, color=METHODS["ensemble"].colour, linewidth=1.0, alpha=0.8)
    axes.set(xlabel="state of a chain", ylabel=label)


@in_our_look
def histograms(axes: "Axes", values: Mapping[str, np.ndarray], *, label: str) -> None:
    """Outlines of each method's values, as densities in common bins."""
    pooled = np.concatenate(list(values.values()))
    edges = np.histogram_bin_edges(pooled, bins=60)
    for (_, own), (name, colour), _ in each_method(values):
        counts, _ = np.histogram(own, edges)
        axes.stairs(counts / max(len(own), 1), edges, color=colour, label=name, linewidth=1.3)
    axes.set(xlabel=label, ylabel="share of draws")
    axes.locator_params(axis="x", nbins=5)  # log densities are long numbers
    legend(axes)


@in_our_look
def pairs(axes: "Axes", draws: Mapping[str, Float[np.ndarray, "draws 2"]]) -> None:
    """Dots of each method's draws of two numbers."""
    for (_, own), (name, colour), _ in each_method(draws):
        dots(axes, own[:, 0], own[:, 1], color=colour, label=name)
    axes.set(xlabel="first weight", ylabel="second weight")
    legend(axes)
