"""What the hidden layers of the paper's networks are made of."""

import jax
import jax.numpy as jnp
import numpy as np

from follmer.drifts.stack import scaled_softplus, softplus

X = jnp.linspace(-40.0, 40.0, 1001)


def test_softplus_is_that_of_jax_up_to_rounding():
    # Of the largest of its terms, which is 1 or more: far to the left that is all of the answer.
    rounding = np.finfo(np.float32).eps
    np.testing.assert_allclose(softplus(X), jax.nn.softplus(X), rtol=4 * rounding, atol=rounding)
    ends = softplus(jnp.array([-jnp.inf, jnp.inf, jnp.nan]))
    np.testing.assert_array_equal(ends, [0.0, jnp.inf, jnp.nan])


def test_softplus_has_the_slope_of_jax_in_both_directions():
    expected = jax.vmap(jax.grad(jax.nn.softplus))(X)
    np.testing.assert_allclose(jax.vmap(jax.grad(softplus))(X), expected, rtol=1e-5, atol=1e-7)
    _, forward = jax.jvp(softplus, (X,), (jnp.ones_like(X),))
    np.testing.assert_allclose(forward, expected, rtol=1e-5, atol=1e-7)


def test_reverse_pass_of_scaled_softplus_keeps_the_factors_alone():
    x, scale = jnp.linspace(-3.0, 3.0, 7), jnp.linspace(0.5, 2.0, 7)
    answer, pull_back = jax.vjp(scaled_softplus, x, scale)
    np.testing.assert_allclose(answer, jax.nn.softplus(x * scale), rtol=1e-6)
    kept = [leaf for leaf in jax.tree.leaves(pull_back) if leaf.shape == x.shape]
    assert len(kept) == 2
    expected = jax.vjp(lambda x, scale: jax.nn.softplus(x * scale), x, scale)[1](jnp.ones(7))
    for found, truth in zip(pull_back(jnp.ones(7)), expected, strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-6)
