"""Convolutions as matrix products: the same values and gradients as the plain ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import from_network
from follmer.targets.convolutions import _Rewritten, fast_on_cpu

_KEY = jax.random.key(0)


class Net(eqx.Module):
    """Layers in turn, and a linear one at the end."""

    layers: list
    last: eqx.nn.Linear

    def __init__(self, layers, shape):
        self.layers = layers
        size = jax.eval_shape(lambda x: _in_turn(layers, x), jnp.zeros(shape)).size
        self.last = eqx.nn.Linear(size, 3, key=_KEY)

    def __call__(self, x):
        return self.last(_in_turn(self.layers, x))


class Compiled(eqx.Module):
    """A layer that compiles itself."""

    layer: eqx.Module

    def __call__(self, x):
        return eqx.filter_jit(self.layer)(x)


def _in_turn(layers, x):
    for layer in layers:
        x = layer(x)
    return x.ravel()


def _conv(*args, **kwargs):
    return eqx.nn.Conv2d(*args, **kwargs, key=_KEY)


def _pair(layers, shape):
    """The plain forward pass, the fast one and parameters."""
    parameters, rest = eqx.partition(Net(layers, shape), eqx.is_inexact_array)

    def plain(parameters, x):
        return jax.vmap(eqx.combine(parameters, rest))(x)

    return plain, fast_on_cpu(plain, parameters, shape, jnp.float32), parameters


def _values_and_gradients(apply, parameters, x):
    def loss(parameters, x):
        outputs = apply(parameters, x)
        return jnp.sum(jnp.sin(outputs)), outputs

    return jax.vmap(jax.grad(loss, argnums=(0, 1), has_aux=True), (0, None))(parameters, x)


_CASES = {
    "two layers": [_conv(2, 4, 3), jnp.tanh, _conv(4, 5, 3)],
    "strides": [_conv(2, 4, 3, stride=2), jnp.tanh, _conv(4, 5, 3, stride=(1, 2))],
    "padding": [_conv(2, 4, 3, padding=1), jnp.tanh, _conv(4, 5, (3, 2), padding="SAME")],
    "average pooling": [_conv(2, 4, 3), jnp.tanh, eqx.nn.AvgPool2d(2, 2), _conv(4, 5, 2)],
    "max pooling": [_conv(2, 4, 3), jax.nn.relu, eqx.nn.MaxPool2d(2, 2), _conv(4, 5, 2)],
    "overlapping windows": [_conv(2, 4, 3), jax.nn.relu, eqx.nn.MaxPool2d(3, 2), _conv(4, 5, 2)],
    "groups": [_conv(2, 4, 3), jnp.tanh, _conv(4, 6, 3, groups=2)],
    "dilation": [_conv(2, 4, 3), jnp.tanh, _conv(4, 6, 3, dilation=2)],
    "many outputs": [_conv(2, 4, 3), jnp.tanh, _conv(4, 100, 3), jnp.tanh, _conv(100, 60, 3)],
    "inside jit": [Compiled(_conv(2, 4, 3)), jnp.tanh, Compiled(_conv(4, 5, 3))],
}


@pytest.mark.parametrize("case", _CASES)
def test_values_and_gradients_are_those_of_the_plain_convolutions(case):
    shape = (2, 11, 12)
    plain, fast, parameters = _pair(_CASES[case], shape)
    assert isinstance(fast, _Rewritten)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, -leaf]), parameters)
    x = jax.random.normal(jax.random.key(1), (4, *shape))
    wanted, found = jax.jit(
        lambda several, x: [_values_and_gradients(one, several, x) for one in (plain, fast)]
    )(several, x)
    for one, other in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_curvature_can_be_taken():
    plain, fast, parameters = _pair(_CASES["max pooling"], (2, 11, 12))
    x = jax.random.normal(jax.random.key(1), (4, 2, 11, 12))

    def product(apply):
        gradient = jax.grad(lambda parameters: jnp.sum(jnp.sin(apply(parameters, x))))
        return jax.jvp(gradient, (parameters,), (parameters,))[1]

    found = jax.jit(lambda: [product(apply) for apply in (plain, fast)])()
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def test_no_convolution_with_groups_is_left_under_vmap():
    _, fast, parameters = _pair(_CASES["max pooling"], (2, 11, 12))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), parameters)
    found = jax.make_jaxpr(_values_and_gradients, static_argnums=0)(
        fast, several, jnp.zeros((4, 2, 11, 12))
    )
    assert "conv_general_dilated" not in str(found)
    assert "select_and_scatter" not in str(found)


def test_patches_of_the_images_are_computed_once_for_all_networks():
    _, fast, parameters = _pair([_conv(2, 4, 3)], (2, 11, 12))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf] * 7), parameters)
    found = jax.make_jaxpr(jax.vmap(fast, (0, None)))(several, jnp.zeros((4, 2, 11, 12)))
    # 3 × 4 pixels of 2 channels under 1 × 2 outputs, 9 × 5 such places of 4 rows; one product for
    # 7 networks.
    assert "f32[24,180]" in str(found)
    assert "f32[7,24,180]" not in str(found)


def test_a_network_without_convolutions_is_not_touched():
    parameters, rest = eqx.partition(eqx.nn.MLP(3, 2, 4, 1, key=_KEY), eqx.is_inexact_array)

    def plain(parameters, x):
        return jax.vmap(eqx.combine(parameters, rest))(x)

    assert fast_on_cpu(plain, parameters, (3,), jnp.float32) is plain


def test_other_layouts_of_images():
    def apply(kernel, x):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ).sum(axis=(1, 2))

    kernel = jax.random.normal(_KEY, (3, 3, 2, 5))
    x = jax.random.normal(jax.random.key(1), (4, 9, 8, 2))
    fast = fast_on_cpu(apply, kernel, x.shape[1:], x.dtype)
    assert isinstance(fast, _Rewritten)
    np.testing.assert_allclose(fast(kernel, x), apply(kernel, x), rtol=2e-5, atol=2e-5)


def test_a_target_of_an_equinox_network_has_them():
    x = np.random.default_rng(0).normal(size=(6, 2, 11, 12)).astype(np.float32)
    target = from_network(
        Net(_CASES["max pooling"], (2, 11, 12)),
        data=(x, np.arange(6) % 3),
        likelihood="categorical",
    )
    found = jax.make_jaxpr(jax.grad(target.log_density))(jnp.ones(target.dim))
    assert "conv_general_dilated" not in str(found)
