"""Time grids: shape, ends, order, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import InputError
from follmer.paths import GRIDS, as_grid, geometric, grid_times, uniform


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("num_steps", [1, 2, 3, 10, 100, 1000])
def test_named_grid_rises_strictly_from_0_to_1(name, num_steps):
    times = grid_times(as_grid(name), num_steps)
    assert times.shape == (num_steps + 1,)
    assert times[0] == 0
    assert times[-1] == 1
    assert np.all(np.diff(times) > 0)


@pytest.mark.parametrize("name", GRIDS)
def test_steps_stay_positive_in_single_precision(name):
    lengths = np.diff(grid_times(as_grid(name), 1000)).astype(np.float32)
    assert np.all(lengths > 0)


def test_uniform_steps_are_equal():
    np.testing.assert_allclose(np.diff(uniform(7)), 1 / 7, rtol=1e-12)


def test_geometric_remaining_times_have_one_ratio_and_end_at_the_last_step():
    remaining = 1 - geometric(6, last_step=1e-2)
    np.testing.assert_allclose(remaining[1:-1] / remaining[:-2], 1e-2 ** (1 / 5), rtol=1e-12)
    np.testing.assert_allclose(remaining[-2], 1e-2, rtol=1e-12)


def test_own_grid_function_is_used_as_it_is():
    def quadratic(num_steps):
        return np.linspace(0, 1, num_steps + 1) ** 2

    assert as_grid(quadratic) is quadratic
    np.testing.assert_array_equal(grid_times(quadratic, 4), [0, 1 / 16, 1 / 4, 9 / 16, 1])


def test_own_grid_may_return_a_list():
    np.testing.assert_array_equal(grid_times(lambda k: [0, 0.25, 1], 2), [0, 0.25, 1])


def test_own_grid_of_jax_arrays_works_inside_jit():
    def grid(num_steps):
        return jnp.linspace(0, 1, num_steps + 1)

    lengths = jax.jit(lambda: jnp.asarray(np.diff(grid_times(grid, 4))))()
    np.testing.assert_array_equal(lengths, 0.25)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda k: np.linspace(0, 1, k), r"shape \(3,\) for 3 steps, not \(4,\)"),
        (lambda k: np.linspace(0, 1, k + 2), r"shape \(5,\)"),
        (lambda k: np.zeros((k + 1, 1)), r"shape \(4, 1\)"),
        (lambda k: 0.5, r"shape \(\)"),
        (lambda k: None, r"shape \(\)"),
        (lambda k: np.linspace(0.1, 1, k + 1), "rise strictly"),
        (lambda k: np.linspace(0, 0.9, k + 1), "rise strictly"),
        (lambda k: np.linspace(1, 0, k + 1), "rise strictly"),
        (lambda k: [0, 0.5, 0.5, 1], "rise strictly"),
        (lambda k: [0, 0.7, 0.5, 1], "rise strictly"),
        (lambda k: [0, np.nan, 0.5, 1], "rise strictly"),
        (lambda k: [0, 0.5, np.inf, 1], "rise strictly"),
        (lambda k: "uniform", "grid"),
        (lambda k: [[0, 1], [1]], "grid"),
    ],
)
def test_bad_grid_function_is_an_input_error(bad, says):
    with pytest.raises(InputError, match=says):
        grid_times(as_grid(bad), 3)


@pytest.mark.parametrize("num_steps", [0, -1, True])
def test_bad_number_of_steps_is_an_input_error(num_steps):
    with pytest.raises(InputError, match="num_steps must be a whole number"):
        grid_times(uniform, num_steps)


def test_unknown_grid_names_the_nearest():
    with pytest.raises(InputError, match=r"'geometrical' is unknown.*\n.*'geometric'\?"):
        as_grid("geometrical")


@pytest.mark.parametrize("grid", [None, 3, np.linspace(0, 1, 4)])
def test_grid_that_is_no_name_and_no_function_is_an_input_error(grid):
    with pytest.raises(InputError, match="is unknown"):
        as_grid(grid)
