"""Rows left out by each chain, and the chains' shares."""

import numpy as np
from scipy import stats

from follmer.judging.stacking import levels_by_chain, loo_by_chain, stacked


def test_rows_left_out_are_those_of_a_conjugate_posterior():
    """Of a normal mean with a flat prior: without row i it is N(mean of the others, 1/(n − 1))."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=30)
    draws = rng.normal(y.mean(), 30**-0.5, size=(2, 4000))
    found = loo_by_chain(stats.norm.logpdf(y, draws[..., None]))
    others = (y.sum() - y) / 29
    expected = stats.norm.logpdf(y, others, np.sqrt(1 + 1 / 29))
    # Weights vary by a factor of e at most: 4000 draws leave an error of a few thousandths.
    np.testing.assert_allclose(found, np.broadcast_to(expected, (2, 30)), atol=0.02)


def test_levels_are_those_of_a_conjugate_posterior_without_the_row():
    rng = np.random.default_rng(0)
    y = rng.normal(size=30)
    draws = rng.normal(y.mean(), 30**-0.5, size=(2, 4000))[..., None]
    found = levels_by_chain(
        stats.norm.logpdf(y, draws), stats.norm.cdf(y, draws), np.array([0.3, 0.7])
    )
    expected = stats.norm.cdf(y, (y.sum() - y) / 29, np.sqrt(1 + 1 / 29))
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_one_draw_leaves_nothing_out():
    logs = np.random.default_rng(0).normal(size=(3, 1, 5))
    np.testing.assert_allclose(loo_by_chain(logs), logs[:, 0])


def test_shares_go_to_the_chain_that_predicts_best():
    elpd = np.random.default_rng(0).normal(size=(3, 400))
    elpd[1:] -= 2.0
    shares = stacked(elpd)
    np.testing.assert_allclose(shares.sum(), 1.0)
    assert shares[0] > 0.8
    assert np.mean(np.log(shares @ np.exp(elpd))) > np.mean(np.log(np.exp(elpd).mean(axis=0)))


def test_chains_that_are_each_right_for_half_of_the_rows_share():
    elpd = np.where(np.arange(100) % 2 == np.arange(2)[:, None], 0.0, -3.0)
    np.testing.assert_allclose(stacked(elpd), 0.5, atol=1e-6)


def test_chains_that_differ_by_chance_stay_nearly_equal():
    elpd = -1.0 + 0.05 * np.random.default_rng(0).normal(size=(12, 100))
    shares = stacked(elpd)
    assert shares.min() > 0.04
    assert shares.max() < 0.2
    same = stacked(np.broadcast_to(elpd[:1], (12, 100)))
    np.testing.assert_allclose(same, 1 / 12)
