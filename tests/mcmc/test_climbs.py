"""Climbs to modes in lockstep."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target
from follmer.mcmc.climbs import Ends, climb
from follmer.mcmc.modes import lowest_between, separate_modes
from follmer.targets import Density

SD = np.array([1e-2, 1.0, 30.0])
MEAN = np.array([0.1, -2.0, 50.0])


def density(log_density, dim):
    return Density(Target(log_density, like=jnp.zeros(dim)))


def scaled(x):
    return jnp.sum(norm.logpdf(x, jnp.asarray(MEAN), jnp.asarray(SD)))


def test_climbs_reach_the_mode_of_a_gaussian_of_mixed_scales():
    starts = np.random.default_rng(0).normal(size=(16, 3))
    ends = climb(density(scaled, 3), starts, SD)
    assert len(ends.x) == 16
    # A hundredth of a nat below the mode is a seventh of a standard deviation.
    np.testing.assert_allclose(np.abs(ends.x - MEAN) / SD, 0.0, atol=0.15)
    assert (np.diff(ends.log_density) <= 0).all()


def test_climbs_from_far_away_end_around_the_same_mode():
    starts = 100.0 * np.random.default_rng(0).normal(size=(16, 3))
    ends = climb(density(scaled, 3), starts)
    assert len(ends.x) == 16
    assert separate_modes(density(scaled, 3), ends).sum() == 1
    np.testing.assert_allclose(np.abs(ends.x[0] - MEAN) / SD, 0.0, atol=0.15)


def test_a_curved_valley_is_followed_to_its_end(x64):
    def rosenbrock(x):
        return -(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)

    ends = climb(density(rosenbrock, 2), np.array([[-1.2, 1.0], [2.0, -3.0]]))
    np.testing.assert_allclose(ends.x, 1.0, atol=0.02)


def test_starts_without_a_finite_density_are_left_out():
    def half_line(x):
        return jnp.where(x[0] > 0, norm.logpdf(x[0], 2.0), jnp.nan)

    ends = climb(density(half_line, 1), np.array([[-1.0], [3.0], [0.5]]))
    assert len(ends.x) == 2
    np.testing.assert_allclose(ends.x, 2.0, atol=0.02)
    assert len(climb(density(half_line, 1), np.array([[-1.0]])).x) == 0


def test_lines_are_searched_for_their_lowest_point():
    two = density(lambda x: -0.5 * (jnp.abs(x[0]) - 5.0) ** 2, 1)
    lowest = lowest_between(two, np.array([5.0]), np.array([[-5.0], [4.0]]))
    # The middle of 16 intervals: half an interval, .3, from 0.
    assert -12.5 <= lowest[0] < -0.5 * (5.0 - 10.0 / 32) ** 2 + 1e-3
    assert lowest[1] > -0.5


@pytest.mark.parametrize(("gap", "expected"), [(0.5, 1), (6.0, 2)])
def test_ends_beyond_a_dip_are_modes_of_their_own(gap, expected):
    two = density(lambda x: jnp.logaddexp(norm.logpdf(x[0]), norm.logpdf(x[0], gap)), 1)
    ends = climb(two, np.array([[-1.0], [gap + 1.0], [0.3]]))
    assert separate_modes(two, ends).sum() == expected
    assert separate_modes(two, Ends(ends.x[:1], ends.log_density[:1])).tolist() == [True]
