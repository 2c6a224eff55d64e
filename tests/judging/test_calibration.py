"""A pool of draws sharpened by rows that are left out."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from follmer.judging.calibration import (
    log_sharpening,
    pool_levels,
    power_of,
    powered,
    sharpness_of,
)

COUNT = 4000


@pytest.mark.parametrize("alpha", [0.7, 1.0, 1.5])
def test_the_sharpness_is_that_of_the_levels(alpha):
    levels = np.random.default_rng(0).beta(alpha, alpha, COUNT)
    # The information of one row at α = 1 is .71.
    assert sharpness_of(levels, 1e-4) == pytest.approx(alpha, abs=4 * 1.2 * alpha / COUNT**0.5)


def test_what_chance_explains_changes_nothing():
    assert sharpness_of(np.array([0.4, 0.5, 0.6]), 1e-4) == 1.0
    uniform = np.random.default_rng(0).uniform(size=(200, 100))
    changed = np.mean([sharpness_of(levels, 1e-4) != 1.0 for levels in uniform])
    # Two standard errors: one in twenty, of 200.
    assert changed < 0.05 + 4 * (0.05 * 0.95 / 200) ** 0.5


def test_levels_at_the_ends_are_those_that_can_be_told_apart():
    assert np.isfinite(sharpness_of(np.array([0.0, 1.0] * 50), 1e-3))
    assert sharpness_of(np.full(10_000, 0.5), 1e-3) == 3.0
    assert sharpness_of(np.array([0.0, 1.0] * 5000), 1e-3) == 0.4


def test_an_average_of_calibrated_members_is_sharpened_back():
    """Four parts and noise make y; a member that knows one part is calibrated, the average not."""
    rng = np.random.default_rng(0)
    known = rng.normal(size=(COUNT, 4))
    y = known.sum(axis=1) + rng.normal(size=COUNT)
    # Given one part, y is normal around it with the variance of the others and of the noise.
    members = stats.norm(known, 2.0)
    levels = members.cdf(y[:, None]).mean(axis=1)
    covered = np.mean(np.abs(levels - 0.5) < 0.45)
    assert covered > 0.93
    alpha = sharpness_of(levels[::2], 1e-4)
    low, high = pool_levels(np.array([0.05, 0.95]), alpha)
    other = levels[1::2]
    calibrated = np.mean((low <= other) & (other <= high))
    assert calibrated == pytest.approx(0.9, abs=4 * (0.09 / len(other)) ** 0.5)
    assert np.mean(np.asarray(log_sharpening(jnp.asarray(other), jnp.asarray(alpha)))) > 0


def test_a_sharpened_density_is_that_of_its_levels():
    levels = np.linspace(0.01, 0.99, 9)
    found = log_sharpening(jnp.asarray(levels), jnp.asarray(1.3))
    np.testing.assert_allclose(found, stats.beta(1.3, 1.3).logpdf(levels), atol=1e-4)
    np.testing.assert_allclose(pool_levels(stats.beta(1.3, 1.3).cdf(levels), 1.3), levels)


@pytest.mark.parametrize("power", [0.7, 1.0, 1.5])
def test_the_power_of_class_probabilities_is_that_of_the_labels(power):
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(5), COUNT)
    labels = np.array([rng.choice(5, p=row) for row in true])
    told = np.asarray(powered(true, 1.0 / power))
    np.testing.assert_allclose(told.sum(axis=1), 1.0, rtol=1e-5)
    # The information of one row on ln power: the variance of ln p under p, averaged over rows.
    logs = np.log(true)
    variance = np.sum(true * logs**2, axis=1) - np.sum(true * logs, axis=1) ** 2
    error = power / np.sqrt(np.sum(variance))
    assert power_of(told, labels) == pytest.approx(power, abs=4 * error)
