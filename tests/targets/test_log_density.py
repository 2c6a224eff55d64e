"""Log densities with a position, as BlackJAX and bayeux have them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import expon, norm

import follmer
from compilations import compiled
from follmer import InputError, NonFiniteError
from follmer.targets import values_and_gradients


def far(position):
    return norm.logpdf(position["a"], 5000.0).sum() + norm.logpdf(position["b"], -3.0)


FAR = {"a": np.array([5000.5, 4999.0]), "b": -2}


class Model(NamedTuple):
    """What a bayeux model shows."""

    log_density: Any
    test_point: Any
    transform_fn: Any = None


def positive(position):
    return {"scale": jax.nn.softplus(position["scale"]), "loc": position["loc"]}


def scaled(position):
    return expon.logpdf(position["scale"]) + norm.logpdf(position["loc"], 0, position["scale"])


def evaluated(target):
    return values_and_gradients(target, np.full((2, target.dim), 0.3, np.float32))


def test_the_position_is_the_origin_and_draws_are_positions(x64):
    target = follmer.from_log_density(far, FAR)
    x = jnp.array([0.1, -0.2, 0.3])
    draw = target.constrain(x)
    np.testing.assert_allclose(draw["a"], [5000.6, 4998.8], rtol=1e-12)
    np.testing.assert_allclose(draw["b"], -1.7, rtol=1e-12)
    np.testing.assert_allclose(target.log_density(x), far(draw), rtol=1e-12)


def test_a_bare_number_is_a_position(x64):
    target = follmer.from_log_density(lambda x: -x * x, 1.0)
    np.testing.assert_allclose(target.log_density(jnp.array([0.5])), -2.25, rtol=1e-12)


def test_a_model_of_bayeux_has_its_transform_and_its_jacobian(x64):
    target = follmer.from_log_density(Model(scaled, {"scale": 1.0, "loc": 0.0}, positive))
    x = jnp.array([0.4, 1.2])  # loc, scale
    scale = jax.nn.softplus(1.2)
    expected = expon.logpdf(scale) + norm.logpdf(0.4, 0, scale) + jax.nn.log_sigmoid(1.2)
    np.testing.assert_allclose(target.log_density(x), expected, rtol=1e-12)
    np.testing.assert_allclose(target.constrain(x)["scale"], scale, rtol=1e-12)


def test_other_positions_of_the_same_density_compile_nothing():
    def density(position):
        return norm.logpdf(position).sum()

    assert compiled(evaluated, follmer.from_log_density(density, jnp.zeros(2))) > 0
    second = follmer.from_log_density(density, jnp.ones(2))
    assert compiled(evaluated, second) == 0
    np.testing.assert_allclose(evaluated(second)[0], 2 * norm.logpdf(1.3), rtol=1e-5)


def test_a_fit_starts_from_the_position(key):
    """So far out that a search around zero would have much to climb."""
    posterior = follmer.fit(follmer.from_log_density(far, FAR), key=key, progress=False)
    assert posterior.plan[0].verdict == "trustworthy"
    mean = posterior.expectation(lambda position: position["a"], key=key)
    # Of 4096 draws with nearly even weights; single precision resolves 5000 to 0.0005.
    np.testing.assert_allclose(mean, 5000.0, atol=5 / np.sqrt(4096) + 1e-3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((far,), InputError, "initial_position is missing"),
        ((3, 1.0), InputError, "log_density is int, not a function"),
        ((far, {"a": "text"}), InputError, "not a tree of numbers"),
        ((lambda x: jnp.log(x), -1.0), NonFiniteError, "at the initial position is nan"),
        ((lambda x: x, jnp.ones(2)), InputError, "it must return one number"),
    ],
    ids=["no position", "no function", "text", "outside", "vector"],
)
def test_what_cannot_be_sampled_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        follmer.from_log_density(*arguments)


def test_a_transform_that_changes_shapes_is_refused():
    with pytest.raises(InputError, match=r"(?s)transform_fn turns .*constraints"):
        follmer.from_log_density(
            lambda x: -jnp.sum(x**2),
            jnp.ones(2),
            transform_fn=lambda x: jnp.append(x, 1.0),
        )
