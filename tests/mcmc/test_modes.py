"""The search for modes, near and far."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target
from follmer.mcmc.modes import _Found, find_modes
from follmer.targets import Density


def search(log_density, dim, key, **options):
    return find_modes(Density(Target(log_density, like=jnp.zeros(dim))), key, **options)


def mixture(centres):
    centres = jnp.asarray(centres)
    return lambda x: jax.nn.logsumexp(-0.5 * jnp.sum((x - centres) ** 2, axis=1))


def test_a_log_concave_density_has_one_mode(key):
    found = search(lambda x: jnp.sum(norm.logpdf(x, 50.0, 30.0)), 3, key)
    assert len(found.x) == 1
    assert str(found) == "64 climbs from starts up to 1000 units away found one mode"


@pytest.mark.parametrize("distance", [8.0, 80.0, 400.0])
def test_two_modes_are_found_however_far(distance, key):
    found = search(mixture(np.array([[-distance] * 5, [distance] * 5])), 5, key)
    assert len(found.x) == 2
    np.testing.assert_allclose(np.sort(found.x[:, 0]), [-distance, distance], atol=0.1)


def test_climbs_go_on_while_there_are_more_modes(key):
    # A grid, so that no two are nearer than 20 units.
    grid = 20.0 * np.stack(np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), -1).reshape(-1, 2)
    found = search(mixture(grid), 2, key)
    assert len(found.x) == 25
    assert found.num_climbs > 64
    assert not found.are_countless


def test_modes_without_number_are_told(key):
    found = search(lambda x: -jnp.sum((x**2 - 9.0) ** 2), 24, key)
    assert found.are_countless
    assert found.num_climbs == 128


@pytest.mark.parametrize("dim", [2, 4])
def test_a_ridge_is_one_mode_however_it_bends(dim, key):
    found = search(lambda x: -0.5 * ((jnp.sqrt(x @ x + 1e-9) - 4.0) / 0.3) ** 2, dim, key)
    assert len(found.x) == 1
    assert found.num_climbs == 64


def test_narrow_modes_among_wide_ones_are_found(key):
    """Each basin is the smaller, the narrower its mode; here 1 % of a cell."""
    centres = 30.0 * np.stack(np.meshgrid(*3 * [np.arange(-1, 2)]), -1).reshape(-1, 3)
    widths = np.where(np.arange(27) % 3 == 0, 0.4, 2.0)

    def uneven(x):
        logs = -0.5 * jnp.sum((x - centres) ** 2, axis=1) / widths**2 - 3 * jnp.log(widths)
        return jax.nn.logsumexp(logs)

    found = search(uneven, 3, key)
    assert len(found.x) == 27
    assert found.search_ended


@pytest.mark.parametrize(("drop", "count"), [(0.0, 2), (35.0, 1)])
def test_a_search_that_is_cut_short_has_ended_where_other_modes_hold_no_mass(key, drop, count):
    """The second mode is wide: it is the lower one's height and width together that tell."""

    def uneven(x):
        wide = -0.5 * jnp.sum(((x - 40.0) / 4.0) ** 2) - drop
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), wide)

    found = search(uneven, 3, key, max_climbs=64)
    assert len(found.x) == len(found.gaussians) == len(found.visits) == count
    assert found.search_ended == (count == 1)
    if count == 2:
        assert found.has_seen_all(np.array([True, False]))
        assert not found.has_seen_all(np.array([True, True]))


def test_modes_far_from_all_that_were_found_first_are_found(key):
    """Starts meet the two wide modes first; the box of these is a tenth as wide as needed."""
    centres = np.zeros((4, 5))
    centres[1, 0], centres[2, 1], centres[3, 2] = 8.0, 30.0, -30.0
    widths = np.array([2.0, 2.0, 0.7, 0.7])

    def uneven(x):
        logs = -0.5 * jnp.sum((x - centres) ** 2, axis=1) / widths**2 - 5 * jnp.log(widths)
        return jax.nn.logsumexp(logs)

    assert len(search(uneven, 5, key, num_screened=16384).x) == 4


def test_one_mode_is_not_believed_to_be_the_only_one_too_soon(key):
    """The other's basin is met by one start of a hundred."""

    def uneven(x):
        narrow = -0.5 * jnp.sum((x - 12.0) ** 2) / 0.5**2 - 4 * jnp.log(0.5)
        return jnp.logaddexp(-0.5 * jnp.sum(x**2) / 2.0**2 - 4 * jnp.log(2.0), narrow)

    assert len(search(uneven, 4, key).x) == 1
    assert len(search(uneven, 4, key, climbs_to_one=512).x) == 2


@pytest.mark.parametrize(("dim", "wide"), [(3, 8.0), (4, 4.0)])
def test_a_narrow_mode_far_from_a_wide_one_shows_by_its_slopes(key, dim, wide):
    """It holds most of the mass, and its basin is met by one random start of 10⁴ or so."""

    def uneven(x):
        narrow = 2.0 - 0.5 * jnp.sum((x - 70.0 / np.sqrt(dim)) ** 2)
        return jnp.logaddexp(narrow, -0.5 * jnp.sum(x**2) / wide**2 - dim * jnp.log(wide))

    assert len(search(uneven, dim, key, climbs_to_one=256).x) == 1
    assert len(search(uneven, dim, key, climbs_to_one=256, num_screened=16384).x) == 2


def test_a_mode_that_differs_in_one_of_many_coordinates_is_found(key):
    """Moves of all coordinates at once never meet it: it is narrower in each."""

    def uneven(x):
        narrow = 20 * jnp.log(3.0) - 4.5 * (jnp.sum(x[1:] ** 2) + (x[0] - 30.0) ** 2)
        return jnp.logaddexp(narrow, -0.5 * jnp.sum(x**2))

    assert len(search(uneven, 20, key, climbs_to_one=256, num_screened=16384).x) == 2


def test_points_from_where_a_gaussian_is_seen_are_explained(key):
    """On either side of a ridge that divides two modes, those nearer the unknown one come first."""

    def known(x):
        return -0.5 * jnp.sum((x / jnp.array([1.0, 5.0])) ** 2)

    def both(x):
        return jnp.logaddexp(known(x), -0.5 * jnp.sum((x - 40.0) ** 2))

    found = _Found(Density(Target(both, like=jnp.zeros(2))))
    found.add(np.zeros((1, 2)))
    x = np.random.default_rng(0).uniform(-60.0, 60.0, (1000, 2))
    nearer = np.asarray(jax.vmap(lambda x: both(x) - known(x) > 1.0)(x))
    assert 50 < nearer.sum() < 500
    chosen = {tuple(one) for one in found.least_explained(x, int(nearer.sum()))}
    assert chosen == {tuple(one) for one in x[nearer]}


def test_points_where_slopes_overflow_or_vanish_are_not_screened(key):
    """Squared squares, far out, are beyond single precision; a plateau has no slope."""

    def overflows(x):
        return jnp.where(x[0] > 30.0, 0.0, -(jnp.sum((x**2 - 100.0) ** 2 / 400.0) ** 5))

    found = search(overflows, 2, key, climbs_to_one=256, num_screened=4096)
    assert len(found.x) >= 1


def test_climbs_that_a_bent_ridge_stops_are_no_modes(key):
    """Far up the bend single precision knows no way on."""

    def rosenbrock(x):
        return -((x[0] - 1.0) ** 2) - 8.0 * jnp.sum((x[1:] - 0.5 * x[:-1] ** 2) ** 2)

    found = search(rosenbrock, 3, key, climbs_to_one=512)
    assert len(found.x) == 1
    assert found.num_climbs == 512


@pytest.mark.parametrize(("drop", "expected"), [(10.0, 2), (100.0, 1)])
def test_modes_far_below_the_best_are_left_out(key, drop, expected):
    def uneven(x):
        return -0.5 * (jnp.abs(x[0]) - 8.0) ** 2 - jnp.where(x[0] > 0, 0.0, drop)

    assert len(search(uneven, 1, key).x) == expected


def test_climbs_that_stop_short_go_on(key, x64):
    """A regression on raw predictors is steep far away and has one mode."""
    columns = np.random.default_rng(0).normal(size=(50, 3)) * np.array([1e-2, 1.0, 1e3])
    response = columns @ np.ones(3)

    def regression(x):
        return jnp.sum(norm.logpdf(response, columns @ x[:3], jnp.exp(x[3]))) - x[3] ** 2

    assert len(search(regression, 4, key).x) == 1


def test_one_start_climbs_from_zero(key):
    found = search(lambda x: norm.logpdf(x[0], 2.0), 1, key, num_starts=1)
    assert (len(found.x), found.num_climbs) == (1, 1)


def test_where_zero_has_no_density_climbs_start_elsewhere(key):
    """As with ln |det W|: a fit that can afford one climb alone found no mode."""
    found = search(lambda x: jnp.log(x[0] ** 2) - 0.5 * jnp.sum(x**2), 2, key, num_starts=1)
    np.testing.assert_allclose(np.abs(found.x[0]), [np.sqrt(2.0), 0.0], atol=1e-3)
