"""Figures: what is drawn where, one look, and files that are whole or not there."""

import os
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex

from follmer import FileError, InputError, plots
from follmer.metrics import CalibrationCurve

CURVE = CalibrationCurve(
    np.array([np.nan, 0.7, 0.9]), np.array([np.nan, 0.6, 0.95]), np.array([0, 3, 1])
)
HISTORY = {
    "evaluation_iteration": np.array([100.0, 200.0, 300.0, 400.0]),
    "evaluation_elbo": np.array([-9000.0, -11.0, -10.5, -10.0]),
    "evaluation_ess": np.array([0.1, 0.4, 0.6, 0.8]),
}
GRID = np.linspace(-2, 2, 20)


@pytest.fixture
def panel():
    figure, axes = plots.figure()
    return figure, axes[0, 0]


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_panels_come_in_rows_and_columns():
    assert plots.figure(2, 3)[1].shape == (2, 3)


def test_a_method_has_its_colour_whatever_stands_beside_it(panel):
    _, axes = panel
    plots.calibration(axes, {"sgld": CURVE, "n_sfs": CURVE})
    drawn = lines(axes)
    assert to_hex(drawn["SGLD"].get_color()) == plots.METHODS["sgld"].colour
    assert to_hex(drawn["N-SFS"].get_color()) == plots.METHODS["n_sfs"].colour


def test_no_two_methods_share_a_colour():
    assert len({method.colour for method in plots.METHODS.values()}) == len(plots.METHODS)


def test_what_is_no_method_gets_a_colour_that_no_other_curve_has(panel):
    _, axes = panel
    names = ["n_sfs", "seed 1", "seed 2", "mc_sfs"]
    plots.calibration(axes, dict.fromkeys(names, CURVE))
    colours = {to_hex(line.get_color()) for line in axes.get_lines()}
    assert len(colours) == 1 + len(names)  # with the diagonal


def test_the_reliability_diagram_skips_empty_bins_and_shows_the_share_of_the_others(panel):
    _, axes = panel
    plots.calibration(axes, {"n_sfs": CURVE})
    np.testing.assert_array_equal(lines(axes)["N-SFS"].get_xydata(), [[0.7, 0.6], [0.9, 0.95]])
    np.testing.assert_array_equal(lines(axes)["calibrated"].get_xydata(), [[0, 0], [1, 1]])
    (shares,) = axes.child_axes
    np.testing.assert_allclose(shares.patches[0].get_data().values, [0, 0.75, 0.25])


def test_the_bars_of_a_bin_are_wilsons_interval():
    share, count = np.array([0.5, 1.0]), np.array([100, 4])
    below, above = plots.wilson(share, count)
    # At the interval's ends the share is one standard error away, by the error at the end itself.
    for end, far in ((share - below, below), (share + above, above)):
        inside = end < 1.0
        np.testing.assert_allclose(far[inside], np.sqrt(end * (1 - end) / count)[inside])
    assert above[1] == 0


def test_bars_stand_on_the_curve(panel):
    _, axes = panel
    plots.calibration(axes, {"n_sfs": CURVE})
    first, _ = axes.collections[0].get_segments()
    below, above = plots.wilson(np.array([0.6]), CURVE.counts[[1]])
    np.testing.assert_allclose(first[:, 1], [0.6 - below[0], 0.6 + above[0]])


def test_legends_stand_outside_the_data(panel):
    figure, axes = panel
    plots.calibration(axes, {"n_sfs": CURVE})
    figure.canvas.draw()
    assert axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1


def test_training_shows_elbo_and_ess_by_iteration():
    _, axes = plots.figure(1, 2)
    plots.training(axes[0], {"n_sfs": HISTORY})
    elbo, ess = (lines(one)["N-SFS"].get_xydata() for one in axes[0])
    np.testing.assert_array_equal(elbo[:, 0], HISTORY["evaluation_iteration"])
    np.testing.assert_array_equal(elbo[:, 1], HISTORY["evaluation_elbo"])
    np.testing.assert_allclose(ess[:, 1], [10, 40, 60, 80])
    low, high = axes[0, 0].get_ylim()
    assert -12 < low < -11
    assert high > -10


def test_a_history_without_evaluations_is_named():
    _, axes = plots.figure(1, 2)
    with pytest.raises(InputError, match="history of sgld has no evaluation_iteration"):
        plots.training(axes[0], {"sgld": {"loss": np.zeros(3)}})


def test_the_band_lies_between_its_bounds_in_any_order_of_x(panel):
    _, axes = panel
    x = np.array([2.0, 0.0, 1.0])
    plots.predictive_band(axes, x, x, x - 1, x + 1, points=(x, x), truth=x)
    assert {"N-SFS, mean", "truth", "data"} <= lines(axes).keys()
    np.testing.assert_array_equal(lines(axes)["N-SFS, mean"].get_xdata(), [0, 1, 2])
    (band,) = axes.collections
    np.testing.assert_array_equal(band.get_paths()[0].get_extents().bounds, [0, -1, 2, 4])


def test_class_contours_show_both_classes_and_the_border(panel):
    _, axes = panel
    probability = np.tile(np.linspace(0, 1, 20), (20, 1))
    points, labels = np.array([[-1.0, 0], [1, 0], [1, 1]]), np.array([0, 1, 1])
    plots.class_contours(axes, GRID, GRID, probability, points, labels)
    drawn = lines(axes)
    np.testing.assert_array_equal(drawn["class 0"].get_xydata(), points[:1])
    np.testing.assert_array_equal(drawn["class 1"].get_xydata(), points[1:])
    border = axes.collections[-1].get_paths()[0].vertices
    np.testing.assert_allclose(border[:, 0], 0, atol=1e-12)


def test_draws_are_shown_over_contours_of_the_density(panel):
    _, axes = panel
    log_density = -(GRID**2) / 2 - (GRID[:, None] ** 2) / 2
    draws = np.zeros((5, 2))
    plots.scatter_over_contours(axes, draws, GRID, GRID, log_density, method="sgld")
    assert to_hex(axes.get_lines()[0].get_color()) == plots.METHODS["sgld"].colour
    np.testing.assert_allclose(
        axes.collections[0].levels, log_density.max() - np.array([4.6, 2.0, 0.5])
    )


def test_errors_by_dimension_stay_on_the_logarithmic_axes(panel):
    _, axes = panel
    plots.error_by_dimension(axes, [2, 4], {"mc_sfs": ([1.0, 2.0], [5.0, 0.5])})
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "4"]
    bars = axes.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], [[0.1, 6.0], [1.5, 2.5]])


def test_published_errors_are_dashed_in_the_colour_of_their_method(panel):
    _, axes = panel
    own = {"mc_sfs": ([1.0, 2.0], [0.0, 0.0])}
    plots.error_by_dimension(axes, [2, 4], own, published={"mc_sfs": [3.0, np.nan]})
    line = lines(axes)["MC-SFS, published"]
    assert (line.get_linestyle(), line.get_color()) == ("--", plots.METHODS["mc_sfs"].colour)
    np.testing.assert_array_equal(line.get_ydata(), [3.0, np.nan])


def test_circles_are_circles(panel):
    _, axes = panel
    plots.scatter_over_contours(axes, np.zeros((5, 2)), GRID, GRID, -GRID[:, None] * GRID)
    assert axes.get_aspect() == 1.0


def test_a_composite_shows_shares_as_colours_or_says_that_there_are_none(panel):
    _, axes = panel
    shares = np.array([[[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
    plots.composite(axes, shares)
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), shares)
    _, (spare,) = plots.panels(["none"])
    plots.composite(spare, None)
    assert not spare.get_images()
    assert [text.get_text() for text in spare.texts] == ["diverged"]


def test_an_svg_has_its_text_as_text_and_a_dark_look(panel, tmp_path):
    figure, axes = panel
    plots.calibration(axes, {"n_sfs": CURVE})
    text = plots.save(figure, tmp_path / "figures" / "a.svg").read_text()
    assert ">confidence</text>" in text
    assert "prefers-color-scheme: dark" in text


def test_the_same_figure_is_the_same_file(tmp_path):
    contents = []
    for _ in range(2):
        figure, axes = plots.figure()
        plots.calibration(axes[0, 0], {"n_sfs": CURVE})
        contents.append(plots.save(figure, tmp_path / "a.svg").read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize(("count", "pixels"), [(1000, False), (100_000, True)])
def test_a_big_scatter_becomes_pixels_and_the_file_stays_small(panel, tmp_path, count, pixels):
    figure, axes = panel
    draws = np.random.default_rng(0).normal(size=(count, 2))
    plots.scatter_over_contours(axes, draws, GRID, GRID, -GRID[:, None] * GRID)
    content = plots.save(figure, tmp_path / "a.svg").read_bytes()
    assert (b"<image" in content) == pixels
    assert len(content) < 400_000


def test_a_figure_that_cannot_be_written_leaves_nothing(panel, tmp_path):
    figure, _ = panel
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*taken.svg"):
        plots.save(figure, tmp_path / "taken.svg")
    assert os.listdir(tmp_path) == ["taken.svg"]


def test_missing_matplotlib_is_told_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"follmer\[plots\]"):
        plots.figure()


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (3, (2, 2)), (5, (2, 3))])
def test_panels_have_their_titles_and_none_is_left_over(count, shape):
    titles = [f"panel {i}" for i in range(count)]
    figure, axes = plots.panels(titles)
    assert [panel.get_title() for panel in axes] == titles
    assert figure.axes == axes
    assert axes[0].get_gridspec().get_geometry() == shape
