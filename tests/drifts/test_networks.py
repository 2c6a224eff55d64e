"""The paper's networks: sizes as printed, zero at the start, no argument ignored."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import NSFS, InputError, Target
from follmer.drifts import DRIFTS, MLP, BatchNormMLP, ResNet, build_drift
from follmer.drifts.resnet import sinusoids
from follmer.paths import Control
from follmer.targets import Layout


def count(tree):
    return sum(
        leaf.size for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.ShapeDtypeStruct)
    )


def shapes(make):
    return eqx.filter_eval_shape(make, key=jax.random.key(0))


def linear(in_size, out_size):
    return in_size * out_size + out_size


def perturbed(drift):
    """The drift with noise on its weights, so that its last layer is not zero."""
    leaves, treedef = jax.tree.flatten(drift)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [
        0.3 * jax.random.normal(one, leaf.shape) for leaf, one in zip(leaves, keys, strict=True)
    ]
    return jax.tree.map(jnp.add, drift, jax.tree.unflatten(treedef, noise))


@pytest.mark.parametrize(("dim", "width"), [(1, 20), (3, 7), (50, 300)])
def test_mlp_has_as_many_parameters_as_listing_1(dim, width):
    expected = linear(dim + 1, width) + 3 * linear(width, width) + linear(width, dim)
    assert count(shapes(lambda key: MLP(dim, width=width, key=key))) == expected
    printed = shapes(lambda key: BatchNormMLP(dim, width=width, key=key))
    # BatchNorm1d(affine=False) has running statistics but no parameters.
    assert count(printed.stack.layers) == expected
    assert len(printed.stack.norms) == 4


@pytest.mark.parametrize("dim", [2, 61])
def test_resnet_has_as_many_parameters_as_listing_2(dim):
    # A block is a first layer, three inner layers of 300 and a final one, beside the first.
    blocks = sum(linear(size, 300) + 4 * linear(300, 300) for size in (dim, 600, 600))
    expected = blocks + linear(128, 256) + linear(256 + 600, dim)
    assert count(shapes(lambda key: ResNet(dim, key=key))) == expected


def decoupled(name, layout, key=None, **options):
    key = jax.random.key(0) if key is None else key
    return build_drift(name, options, layout, jnp.float32, key)


@pytest.mark.parametrize(("shared", "local", "data", "width"), [(1, 1, 1, 20), (2, 3, 5, 8)])
def test_decoupled_has_as_many_parameters_as_listing_3(shared, local, data, width):
    expected = (
        linear(shared + local + data + 1, width) + 3 * linear(width, width) + linear(width, local)
    )
    layout = Layout(shared, local, data)
    built = shapes(lambda key: decoupled("batch_norm_mlp", layout, key, width=width))
    assert count(built.local.stack.layers) == expected
    assert len(built.local.stack.norms) == 4


@pytest.mark.parametrize("name", DRIFTS)
def test_named_drift_is_exactly_zero_at_the_start(name, key):
    options = {} if name == "zero" else {"width": 8}
    drift = eqx.nn.inference_mode(DRIFTS[name](3, key=key, **options))
    xs = 5 * jax.random.normal(key, (6, 3))
    us = jax.jit(jax.vmap(drift))(jnp.linspace(0, 1, 6), xs)
    np.testing.assert_array_equal(us, 0)


@pytest.mark.parametrize("name", ["time_mlp", "additive", "mlp", "resnet"])
def test_perturbed_drift_depends_on_time_and_state(name, key):
    network = eqx.filter_jit(perturbed(DRIFTS[name](2, width=8, key=key)))

    def drift(t, x):
        answer = network(t, x)
        return answer.u if isinstance(answer, Control) else answer

    t, x = jnp.array(0.3), jnp.array([0.4, -1.0])
    u = drift(t, x)
    assert u.shape == (2,)
    assert np.max(np.abs(drift(t + 0.5, x) - u)) > 1e-3
    for i in range(2):
        assert np.max(np.abs(drift(t, x.at[i].add(0.5)) - u)) > 1e-3


def test_a_coordinates_own_units_see_nothing_else(key):
    drift = DRIFTS["additive"](3, key=key)
    weights = jax.random.normal(key, drift.weights.shape)
    drift = eqx.tree_at(lambda one: one.weights, drift, weights)
    jacobian = jax.jit(jax.jacobian(lambda x: drift(jnp.array(0.3), x).u))
    slopes = jacobian(jnp.array([0.4, -1.0, 0.0]))
    assert np.min(np.abs(np.diag(slopes))) > 1e-3
    np.testing.assert_array_equal(slopes - np.diag(np.diag(slopes)), 0)


def test_sinusoids_run_from_frequency_1_to_1e_4():
    found = sinusoids(jnp.array(0.5), 6)
    angles = 0.5 * np.array([1, 1e-2, 1e-4])
    np.testing.assert_allclose(found, [*np.sin(angles), *np.cos(angles)], rtol=1e-6)


DECOUPLED = Layout(dim=2, local_dim=3, num_features=4)


@pytest.mark.parametrize("name", ["time_mlp", "mlp", "batch_norm_mlp"])
def test_decoupled_is_zero_at_the_start(name):
    drift = eqx.nn.inference_mode(decoupled(name, DECOUPLED, width=8).seeing(jnp.ones((5, 4))))
    np.testing.assert_array_equal(drift(jnp.array(0.5), jnp.ones(2 + 5 * 3)).u, np.zeros(17))


@pytest.mark.parametrize("name", ["time_mlp", "mlp"])
def test_a_local_is_steered_by_itself_its_datum_the_globals_and_the_time_alone(name):
    drift = perturbed(decoupled(name, DECOUPLED, width=8))
    features, x = jnp.ones((5, 4)), jnp.linspace(-1.0, 1.0, 2 + 5 * 3)

    def second(t, x, features):
        return drift.seeing(features)(t, x).u[5:8]

    t = jnp.array(0.5)
    u = second(t, x, features)
    steering = [
        second(t + 0.3, x, features),
        second(t, x.at[6].add(0.3), features),
        second(t, x.at[1].add(0.3), features),
        second(t, x, features.at[1, 2].add(0.3)),
    ]
    for changed in steering:
        assert np.max(np.abs(changed - u)) > 1e-3
    others = second(t, x.at[2:5].add(0.3).at[8:].add(0.3), features.at[0].add(0.3).at[2:].add(0.3))
    np.testing.assert_allclose(others, u, atol=1e-6)
    shared = drift.seeing(features)(t, x).u[:2]
    alone = drift.seeing(features)(t, x.at[2:].add(0.3)).u[:2]
    np.testing.assert_array_equal(shared, alone)


def test_no_drift_takes_no_options():
    with pytest.raises(InputError, match="'zero' takes no drift_options"):
        NSFS(
            Target(lambda x: -(x**2), like=jnp.zeros(())), drift="zero", drift_options={"width": 8}
        )
