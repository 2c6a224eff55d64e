"""A metric at a glance: where its dots stand and which numbers are left out."""

import re

import pytest

from follmer.paper.report.rows import grouped
from follmer.paper.report.strips import strip
from made_up import record


def drawn(records, metric):
    (group,) = grouped(records)
    return strip(group, metric)


def places(text):
    """How far to the right each dot stands, in per cent."""
    return [float(place) for place in re.findall(r'"dot[^"]*" style="left:([\d.]+)%', text)]


def bars(text):
    return [
        (float(left), float(width))
        for left, width in re.findall(r'"bar" style="left:([\d.]+)%;width:([\d.]+)%', text)
    ]


def of(*means, experiment="mine"):
    return [record(experiment, f"m{i}", score=mean) for i, mean in enumerate(means)]


def test_dots_stand_in_proportion_to_their_values():
    low, middle, high = places(drawn(of(-1.0, 0.0, 3.0), "score"))
    assert 0 < low < middle < high < 100
    assert (high - middle) / (middle - low) == pytest.approx(3.0, rel=1e-2)


def test_the_bar_reaches_one_sd_to_either_side():
    records = [record("mine", "a", seed=s, score=v) for s, v in enumerate([1.0, 3.0])]
    text = drawn([*records, *of(10.0)], "score")
    (left, width), (_, none) = bars(text)
    assert left + width / 2 == pytest.approx(places(text)[0], abs=0.02)
    assert width > 0
    assert none == 0


def test_positive_numbers_far_apart_are_on_a_logarithmic_scale():
    text = drawn(of(0.01, 1.0, 100.0), "score")
    low, middle, high = places(text)
    assert high - middle == pytest.approx(middle - low, abs=0.02)
    assert "logarithmic scale" in text
    assert "logarithmic scale" not in drawn(of(1.0, 2.0), "score")


def test_equal_numbers_stand_in_the_middle():
    assert places(drawn(of(5.0, 5.0), "score")) == [50.0, 50.0]


def test_what_is_not_finite_is_not_drawn():
    assert len(places(drawn(of(1.0, float("nan"), 2.0, float("inf")), "score"))) == 2


def test_one_number_alone_is_no_strip():
    assert drawn(of(1.0), "score") == ""


def test_the_papers_numbers_are_hollow():
    text = drawn([record("banana", accuracy=0.9)], "accuracy")
    assert text.count("dot hollow") == 3
    assert text.count('"dot"') == 1
    assert "higher is better" in text


def test_the_last_case_is_the_one_that_is_shown():
    records = [
        record("linear_regression", method, predictive_mean_mae=1.0, settings={"case": case})
        for case in ("d = 32", "d = 64")
        for method in ("n_sfs", "exact")
    ]
    text = drawn(records, "predictive_mean_mae")
    assert "d = 64" in text
    assert "5.88" in text  # MC-SFS in the paper
    assert "d = 32" not in text
