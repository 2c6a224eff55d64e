"""Scores of predictions: against SciPy, and of predictions that are known to be calibrated."""

import jax
import numpy as np
import pytest
from scipy import stats

from follmer.columns import Outcome
from follmer.tabular.model import Predicted
from follmer.tabular.scores import INTERVALS, LEVELS, Baseline, Scores, learn_baseline, score

ROWS = 4000
KEY = jax.random.key(0)
# Four standard errors of a share of so many rows.
CHANCE = 4 * 0.5 / np.sqrt(ROWS)


def predicted(**parts):
    empty = np.zeros((ROWS, 0))
    fields = {"mean": empty, "sd": empty, "quantiles": empty, "probabilities": empty}
    return Predicted(**{**fields, "log_density": np.zeros(ROWS), **parts})


def test_the_baseline_of_numbers_is_a_normal_and_of_classes_their_frequencies():
    y = np.array([1.0, 2.0, 6.0])
    found = learn_baseline(Outcome("y", "regression", ""), y)
    np.testing.assert_allclose(found.log_density(y), stats.norm.logpdf(y, 3, np.std(y)))
    assert found.error(y) == pytest.approx(np.std(y))
    labels = np.array([0, 1, 1, 1])
    found = learn_baseline(Outcome("y", "binary", "", ("a", "b")), labels)
    np.testing.assert_allclose(np.exp(found.log_density(labels)), [0.25, 0.75, 0.75, 0.75])
    assert found.error(labels) == 0.25


@pytest.mark.parametrize("sd", [1.2, 3.0])
def test_the_baseline_of_counts_has_their_mean_and_spread(sd):
    baseline = Baseline("count", (4.0, sd))
    y = np.arange(200)
    p = np.exp(baseline.log_density(y))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert p @ y == pytest.approx(4, abs=1e-3)
    # Counts cannot spread less than Poisson's.
    assert p @ (y - 4.0) ** 2 == pytest.approx(max(sd**2, 4), abs=1e-2)


def test_calibrated_quantiles_are_on_the_diagonal():
    y = np.random.default_rng(0).normal(size=ROWS)
    quantiles = np.tile(stats.norm.ppf(LEVELS), (ROWS, 1))
    found = score(
        Baseline("regression", (0.0, 1.0)),
        predicted(mean=np.zeros(ROWS), quantiles=quantiles),
        y,
        None,
        KEY,
    )
    np.testing.assert_allclose(found.below, LEVELS, atol=CHANCE)
    np.testing.assert_allclose(found.coverage, INTERVALS, atol=CHANCE)


def test_quantiles_of_who_is_too_sure_hold_too_little():
    y = np.random.default_rng(0).normal(size=ROWS)
    quantiles = np.tile(0.5 * stats.norm.ppf(LEVELS), (ROWS, 1))
    found = score(
        Baseline("regression", (0.0, 1.0)),
        predicted(mean=np.zeros(ROWS), quantiles=quantiles),
        y,
        None,
        KEY,
    )
    assert found.coverage[-1] == pytest.approx(2 * stats.norm.cdf(0.5 * 1.6449) - 1, abs=CHANCE)


def test_calibrated_counts_are_on_the_diagonal_in_spite_of_their_steps():
    rng = np.random.default_rng(0)
    means = rng.choice([0.3, 2.0], ROWS)
    y, draws = rng.poisson(means), rng.poisson(means[:, None], (ROWS, 1000))
    quantiles = stats.poisson.ppf(np.array(LEVELS), means[:, None])
    found = score(
        Baseline("count", (1.0, 1.0)),
        predicted(mean=means, quantiles=quantiles),
        y.astype(float),
        draws,
        KEY,
    )
    np.testing.assert_allclose(found.below, LEVELS, atol=CHANCE)
    # Intervals of counts hold at least what they say.
    assert np.all(np.array(found.coverage) > np.array(INTERVALS) - CHANCE)


def test_calibrated_classes_are_off_by_chance_alone():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), ROWS)
    y = (rng.random((ROWS, 1)) > p.cumsum(axis=1)).sum(axis=1)
    found = score(Baseline("multiclass", (0.3, 0.3, 0.4)), predicted(probabilities=p), y, None, KEY)
    assert found.calibration_error < 2 * found.calibration_floor
    assert Scores.from_json(found.as_json()) == found
