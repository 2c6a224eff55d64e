"""Arrays in another memory order: the same elements under the same names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.targets.image_products import window_maxima, window_sums
from follmer.targets.laid_out import Laid, memory_like, plain, product, reshaped, transposed

# Rows, channels, height (in blocks of 2) and width of 3, 4, 6 and 5.
_MEMORY = np.arange(3 * 4 * 6 * 5, dtype=np.float32).reshape(4, 2, 3, 5, 3)
_LAID = Laid(jnp.asarray(_MEMORY), ((4,), (0,), (2, 1), (3,)))
_PLAIN = _MEMORY.transpose(4, 0, 2, 1, 3).reshape(3, 4, 6, 5)


def test_the_plain_form():
    assert _LAID.shape == (3, 4, 6, 5)
    assert _LAID.last == 0
    assert np.array_equal(plain(_LAID), _PLAIN)
    order = (1, 3, 0, 2)
    assert np.array_equal(transposed(_LAID, order).plain(), _PLAIN.transpose(order))


def test_other_arrays_are_laid_alike():
    for other in (_PLAIN, _PLAIN[:1, :, :1, :1], np.float32(2.0)):
        memory = memory_like(jnp.asarray(other), _LAID)
        assert np.array_equal(_LAID.with_memory(_LAID.memory + memory).plain(), _PLAIN + other)


@pytest.mark.parametrize("shape", [(3, 1, 4, 6, 5), (3, 120), (3, 4, 30), (1, 3, 4, 6, 1, 5)])
def test_other_shapes(shape):
    found = reshaped(_LAID, shape)
    assert found is not None
    assert np.array_equal(found.plain(), _PLAIN.reshape(shape))


def test_shapes_that_take_rows_apart_are_left_to_plain_arrays():
    assert reshaped(_LAID, (6, 60)) is None


def test_axes_of_one_element_can_be_left_out():
    one = Laid(_LAID.memory[:1], _LAID.axes)
    found = reshaped(one, (3, 6, 5))
    assert found is not None
    assert np.array_equal(found.plain(), _PLAIN[:, 0])


def test_products_with_a_matrix():
    matrix = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    found = product(_LAID, 1, jnp.asarray(matrix), 1)
    np.testing.assert_allclose(
        found.plain(), np.einsum("rchw,oc->rhwo", _PLAIN, matrix), rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize("windows", [(1, 1, 2, 5), (1, 1, 3, 1), (1, 1, 4, 2)])
def test_windows_side_by_side(windows):
    pools = [(window_sums, jax.lax.add, 0.0), (window_maxima, jax.lax.max, -jnp.inf)]
    for pool, combine, start in pools:
        wanted = jax.lax.reduce_window(_PLAIN, start, combine, windows, windows, "VALID")
        np.testing.assert_allclose(pool(_LAID, windows).plain(), wanted, rtol=1e-6)
