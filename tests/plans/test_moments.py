"""Whitening by moments: the map that rounds of training find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.plans.moments import flattened

COVARIANCE = np.array([[4.0, 1.2], [1.2, 0.5]])
MEAN = np.array([3.0, -1.0])


def correlated():
    precision = jnp.asarray(np.linalg.inv(COVARIANCE))
    return follmer.Target(lambda x: -0.5 * (x - MEAN) @ precision @ (x - MEAN), like=jnp.zeros(2))


@pytest.mark.slow
def test_rounds_of_training_find_the_targets_moments(key):
    posterior = follmer.fit(
        correlated(),
        key=key,
        precondition="moments",
        audit=False,
        num_steps=8,
        drift="mlp",
        num_iterations=200,
        progress=False,
    )
    affine = posterior.target.space.affine
    root = np.asarray(jax.vmap(affine)(jnp.eye(2)) - affine.mean, float).T
    # 2048 draws of which a quarter is effective: moments to within some 5 % of the scale.
    sd = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose((np.asarray(affine.mean) - MEAN) / sd, 0.0, atol=0.25)
    np.testing.assert_allclose(
        root @ root.T / np.outer(sd, sd), COVARIANCE / np.outer(sd, sd), atol=0.25
    )
    assert "moments" in posterior.notes[0]
    assert posterior.gradient_evaluations > 200 * posterior.sampler.algorithm.num_paths


def test_even_weights_are_left_alone():
    logs = np.log([0.2, 0.3, 0.5])
    np.testing.assert_allclose(flattened(logs), [0.2, 0.3, 0.5])


@pytest.mark.parametrize("scale", [10.0, 1e3])
def test_uneven_weights_are_flattened_to_a_quarter_effective(scale):
    logs = scale * np.random.default_rng(0).normal(size=1000)
    weights = flattened(logs)
    assert 1 / np.sum(weights**2) / 1000 == pytest.approx(0.25, abs=1e-3)


def test_draws_without_a_density_get_no_weight():
    weights = flattened(np.array([0.0, 0.0, -np.inf, np.nan]))
    np.testing.assert_allclose(weights, [0.5, 0.5, 0.0, 0.0])
