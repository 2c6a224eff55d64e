"""Plain and weighted moments side by side."""

import numpy as np
import pytest

from follmer.judging import compare_answers, pareto_smooth
from follmer.judging.weights import moments, scalars, spread_errors


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_every_scalar_has_a_name():
    names, values = scalars({"a": np.arange(4.0), "b": np.ones((4, 2, 1))})
    assert names == ["a", "b[0,0]", "b[1,0]"]
    assert values.shape == (4, 3)


def test_even_weights_leave_no_gap(rng):
    found = compare_answers(rng.normal(size=(4000, 2)), np.zeros(4000))
    assert found.mean_gap < 1e-9
    assert found.spread_gap < 1e-9
    # √((κ − 1)/4n) of a normal, κ = 3.
    assert found.spread_error == pytest.approx(np.sqrt(0.5 / 4000), rel=0.1)


def test_gaps_between_plain_and_weighted_moments_are_seen(rng):
    """Draws of N(0, 2²) weighed to N(1, 1): the plain mean is 1 sd off, the sd twice as large."""
    x = 2.0 * rng.normal(size=20_000)
    found = compare_answers({"x": x}, -0.5 * (x - 1.0) ** 2 + 0.125 * x**2)
    # The weights leave about half of the draws.
    assert found.mean_gap == pytest.approx(1.0, abs=5 / np.sqrt(10_000))
    assert found.spread_gap == pytest.approx(1.0, abs=0.05)


def test_heavy_tails_are_named(rng):
    draws = {"light": rng.normal(size=8192), "heavy": rng.standard_t(2.0, size=8192)}
    found = compare_answers(draws, np.zeros(8192))
    assert found.heaviest == "heavy"
    assert found.spread_error > 0.05


def test_a_scalar_that_stands_still_does_not_matter():
    found = compare_answers({"x": np.ones(100)}, np.zeros(100))
    assert (found.mean_gap, found.spread_gap, found.spread_error) == (0.0, 0.0, 0.0)


def test_errors_of_spreads_are_those_of_repeated_samples(rng):
    weights = np.full(500, 1 / 500)
    samples = rng.exponential(size=(2000, 500))
    sds = np.array([moments(one[:, None], weights)[1][0] for one in samples])
    told = np.mean([spread_errors(one[:, None], weights)[0] for one in samples])
    # The kurtosis of so few draws is too small on average.
    assert told == pytest.approx(sds.std() / sds.mean(), rel=0.15)


def test_weights_that_are_all_zero_have_no_shape():
    smooth, khat = pareto_smooth(np.full(100, -np.inf))
    assert np.isnan(smooth).all()
    assert np.isnan(khat)


def test_few_weights_are_normalised_and_their_tail_is_unknown():
    smooth, khat = pareto_smooth(np.array([0.0, np.log(3.0)]))
    np.testing.assert_allclose(np.exp(smooth), [0.25, 0.75])
    assert np.isnan(khat)
