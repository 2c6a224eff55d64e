"""What decoupled drifts can reach, and what the Föllmer drift couples (the paper's remarks)."""

import jax
import jax.numpy as jnp
import numpy as np

from follmer.drifts import GaussianDrift
from follmer.paths import euler_maruyama

# Two locals driven by themselves and by one global, the last coordinate.
MATRIX = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
DENSE = np.array([[14.06, 21.73, 26.84], [21.73, 46.66, 53.67], [26.84, 53.67, 67.07]])


def drift(t, x):
    return jnp.asarray(MATRIX, x.dtype) @ x


def test_a_decoupled_drift_reaches_a_dense_covariance():
    jacobian = jax.jacobian(drift, argnums=1)(jnp.float32(0), jnp.zeros(3))
    assert jacobian[0, 1] == jacobian[1, 0] == 0
    num_steps = 20_000
    dt = 1 / num_steps
    move = jax.jacobian(
        lambda x: euler_maruyama(drift, 1.0, jnp.float32(0), jnp.float32(dt), x).shift
    )(jnp.zeros(3))
    growth = np.eye(3) + np.sqrt(dt) * np.asarray(move, float)
    covariance = np.zeros((3, 3))
    for _ in range(num_steps):
        covariance = growth @ covariance @ growth.T + dt * np.eye(3)
    np.testing.assert_allclose(covariance, DENSE, rtol=1e-3)


def test_the_foellmer_drift_of_the_star_graph_couples_the_locals():
    """x, y | z ~ N(z, 1), z ~ N(0, 1): ∂u_x/∂y is not zero before t = 1."""
    covariance = jnp.array([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    exact = GaussianDrift(jnp.zeros(3), covariance, gamma=1.0)
    for t, expected in [(0.0, 1.0), (0.5, 0.33), (0.9, 0.085), (1.0, 0.0)]:
        coupling = jax.jacobian(exact, argnums=1)(jnp.float32(t), jnp.zeros(3))[0, 1]
        assert abs(float(coupling) - expected) < 0.005, t
