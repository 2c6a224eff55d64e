"""The affine change of variables and targets seen through it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from follmer import InputError, Target
from follmer.targets import Affine
from follmer.targets.affine import diagonal, from_covariance

COVARIANCE = np.array([[2.0, 0.6, 0.0], [0.6, 0.5, -0.1], [0.0, -0.1, 0.1]])
MEAN = np.array([1.0, -2.0, 3.0])
MAPS = {
    "diagonal": diagonal(MEAN, [0.5, 2.0, 3.0], jnp.float32),
    "dense": from_covariance(MEAN, COVARIANCE, jnp.float32),
    "low_rank": Affine(
        jnp.asarray(MEAN, jnp.float32),
        jnp.array([0.5, 2.0, 3.0]),
        jnp.array([[0.6], [0.8], [0.0]]),
        jnp.array([4.0]),
    ),
}


@pytest.mark.parametrize("affine", MAPS.values(), ids=MAPS)
def test_inverse_and_determinant_are_those_of_the_map(affine):
    z = jnp.array([0.3, -1.2, 0.7])
    np.testing.assert_allclose(affine.inverse(affine(z)), z, atol=1e-5)
    jacobian = np.asarray(jax.jacobian(affine)(z), float)
    np.testing.assert_allclose(affine.log_det, np.linalg.slogdet(jacobian)[1], rtol=1e-4)


def test_a_covariance_is_reached():
    jacobian = np.asarray(jax.jacobian(MAPS["dense"])(jnp.zeros(3)), float)
    np.testing.assert_allclose(jacobian @ jacobian.T, COVARIANCE, rtol=1e-4, atol=1e-5)


def test_a_whitened_target_has_the_same_parameters_and_the_density_of_z():
    like = {"a": jnp.zeros(2), "b": jnp.ones(())}
    plain = Target(
        lambda theta: jnp.sum(norm.logpdf(theta["a"])) - theta["b"],
        like=like,
        constraints={"b": constraints.positive},
    )
    affine = MAPS["dense"]
    target = plain.whitened(affine)
    z = jnp.array([0.3, -1.2, 0.7])
    expected = plain.log_density(affine(z)) + affine.log_det
    np.testing.assert_allclose(target.log_density(z), expected, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, target.constrain(z), plain.constrain(affine(z)))
    np.testing.assert_allclose(target.unconstrain(target.constrain(z)), z, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, target.parameters(z), plain.constrain(affine(z)))
    assert (plain.affine, target.affine) == (None, affine)
    assert target.describe() == plain.describe()
    assert plain.whitened(None) is plain
    with pytest.raises(InputError, match="whitened already"):
        target.whitened(affine)
