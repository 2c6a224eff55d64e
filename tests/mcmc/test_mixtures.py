"""Gaussian mixtures fitted to draws."""

import numpy as np
import pytest

from follmer.mcmc.mixtures import (
    Mixture,
    fit_mixture,
    improved,
    joined,
    matched_gaussian,
    pruned,
    safe_cholesky,
)

RNG = np.random.default_rng(0)


def gaussian(mean, covariance):
    return Mixture(np.ones(1), np.asarray(mean, float)[None], np.asarray(covariance, float)[None])


def test_log_density_and_draws_belong_together():
    one = joined(
        [gaussian([0.0, 0.0], np.eye(2)), gaussian([5.0, 0.0], 0.25 * np.eye(2))],
        np.array([0.3, 0.7]),
    )
    x = one.draw(20_000, np.random.default_rng(1))
    share = np.mean(x[:, 0] > 3.0)
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / 20_000) + 2e-3
    expected = np.logaddexp(
        np.log(0.3) - 0.5 * np.sum(x**2, axis=1) - np.log(2 * np.pi),
        np.log(0.7) - 2.0 * np.sum((x - [5.0, 0.0]) ** 2, axis=1) - np.log(2 * np.pi) + np.log(4),
    )
    np.testing.assert_allclose(one.log_density(x), expected, rtol=1e-9)


def test_the_matched_gaussian_is_exact_however_few_the_draws():
    factor = np.array([[3.0, 0.0, 0.0], [1.0, 0.2, 0.0], [0.5, 0.1, 10.0]])
    covariance, mean = factor @ factor.T, np.array([1.0, -2.0, 30.0])
    # Draws of another normal: only the gradients know the target.
    x = mean + 2.0 + RNG.normal(size=(12, 3)) * np.array([1.0, 0.5, 4.0])
    gradients = -(x - mean) @ np.linalg.inv(covariance)
    found = matched_gaussian(x, gradients)
    np.testing.assert_allclose(found.means[0], mean, rtol=1e-5)
    np.testing.assert_allclose(found.covariances[0], covariance, rtol=1e-4, atol=1e-6)


def test_a_gaussian_gets_one_component():
    x, others = RNG.normal(size=(2000, 3)), RNG.normal(size=(1000, 3))
    found = fit_mixture(x, -x, others, np.random.default_rng(0))
    assert len(found.shares) == 1
    np.testing.assert_allclose(found.covariances[0], np.eye(3), atol=1e-6)


def test_two_far_clusters_get_two_components():
    def draws(count):
        centre = np.where(RNG.uniform(size=(count, 1)) < 0.25, -10.0, 10.0)
        return centre + RNG.normal(size=(count, 2)), centre

    (x, centre), (others, _) = draws(4000), draws(1000)
    found = fit_mixture(x, centre - x, others, np.random.default_rng(0))
    assert len(found.shares) == 2
    # 4 standard errors of a share of 4000 draws.
    assert abs(found.shares.min() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)


def test_heavy_tails_are_fitted():
    x, others = RNG.standard_t(3, size=(4000, 1)), RNG.standard_t(3, size=(2000, 1))
    found = fit_mixture(x, -4 * x / (3 + x**2), others, np.random.default_rng(0))
    single = matched_gaussian(x, -4 * x / (3 + x**2))
    assert np.mean(found.log_density(others)) > np.mean(single.log_density(others)) + 0.05


def test_expectation_maximisation_raises_the_likelihood():
    x = np.concatenate([RNG.normal(size=(500, 2)), 4.0 + RNG.normal(size=(500, 2))])
    begun = joined(
        [gaussian([1.0, 1.0], np.eye(2)), gaussian([2.0, 3.0], np.eye(2))], np.ones(2) / 2
    )
    weights = np.ones(len(x))
    scores = [np.mean(improved(begun, x, weights, n).log_density(x)) for n in (0, 1, 5, 20)]
    assert scores == sorted(scores)
    assert scores[-1] > scores[0] + 0.5


def test_small_components_are_pruned():
    three = joined(
        [gaussian([float(i)], np.eye(1)) for i in range(3)], np.array([0.6, 0.4 - 1e-5, 1e-5])
    )
    kept = pruned(three, 10)
    assert len(kept.shares) == 2
    np.testing.assert_allclose(kept.shares.sum(), 1.0)
    assert pruned(three, 1).means[0, 0] == 0.0


@pytest.mark.parametrize("scales", [np.ones(3), np.array([1e-12, 1.0, 1e9])])
def test_roots_of_singular_and_badly_scaled_covariances(scales):
    covariance = np.outer(scales, scales) * np.ones((3, 3))  # of rank one
    lower = safe_cholesky(covariance)
    np.testing.assert_allclose(lower @ lower.T, covariance, rtol=5e-3)
