"""Frames of locals: their small linear algebra, and climbs that stop once they have arrived."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.targets.local import _cholesky, _inverse, climb


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
def test_cholesky_and_inverse_are_lapacks(dim):
    root = np.random.default_rng(0).normal(size=(dim, dim))
    matrix = jnp.asarray(root @ root.T + np.eye(dim), jnp.float32)
    lower = _cholesky(matrix)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), atol=1e-4)
    np.testing.assert_allclose(_inverse(lower), np.linalg.inv(lower), atol=1e-4)


def test_a_matrix_that_is_not_positive_has_no_cholesky_factor():
    for matrix in (jnp.diag(jnp.array([1.0, -1.0])), jnp.array([[1.0, 2.0], [2.0, 1.0]])):
        assert not np.isfinite(_cholesky(matrix)).all()


def test_a_climb_stops_at_the_mode_and_not_before():
    def log_density(x, shared, row):
        return -jnp.sum(jnp.cosh(x - shared)) - 0.1 * jnp.sum((x - row) ** 4)

    x = climb(log_density, jnp.array([2.0, 0.0]), jnp.ones(2), jnp.array([-9.0, 9.0]), 50)
    slope = jax.grad(log_density)(x, jnp.array([2.0, 0.0]), jnp.ones(2))
    np.testing.assert_allclose(slope, 0.0, atol=1e-3)
