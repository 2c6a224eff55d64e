"""Draws reported as a function of the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from follmer import InputError, NonFiniteError, Posterior, Target
from follmer.posterior.samplers import Flow
from follmer.process import Process


def reported(theta):
    return {"share": theta["sigma"] / 2, "pair": jnp.stack([theta["mu"], -theta["mu"]])}


def target(**changes):
    arguments = {
        "log_density": lambda theta: norm.logpdf(theta["mu"]) - theta["sigma"],
        "like": {"mu": 0.0, "sigma": 1.0},
        "constraints": {"sigma": constraints.positive},
        "outputs": reported,
    }
    return Target(**arguments | changes)


@pytest.fixture(scope="module")
def posterior():
    process = Process(target(), num_steps=4, drift_options={"width": 8, "depth": 1})
    return Posterior(process.target, Flow(process, process.parameters(jax.random.key(0))))


def test_outputs_are_reported_and_leave_the_density_alone():
    x = jnp.array([0.3, np.log(2.0)])
    plain = target(outputs=None)
    np.testing.assert_array_equal(target().log_density(x), plain.log_density(x))
    found = target().constrain(x)
    assert set(found) == {"share", "pair"}
    np.testing.assert_allclose(found["share"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(found["pair"], [0.3, -0.3], rtol=1e-6)


def test_parameters_are_there_whatever_the_outputs():
    found = target().parameters(jnp.array([0.3, np.log(2.0)]))
    assert set(found) == {"mu", "sigma"}
    np.testing.assert_allclose([found["mu"], found["sigma"]], [0.3, 2.0], rtol=1e-6)


def test_unconstrain_takes_the_parameters():
    np.testing.assert_allclose(target().unconstrain({"mu": 0.3, "sigma": 1.0}), [0.3, 0.0])


def test_draws_summary_and_datatree_carry_the_reported_names(posterior, key):
    draws = posterior.sample(256, key=key)
    assert {name: leaf.shape for name, leaf in draws.items()} == {"share": (256,), "pair": (256, 2)}
    text = posterior.summary(key=key, num_samples=256)
    for name in ("share", "pair[0]", "pair[1]"):
        assert f"\n{name} " in text
    assert "sigma" not in text
    tree = posterior.to_datatree(key=key, num_samples=256, resampled=False)
    assert set(tree["posterior"].data_vars) == {"share", "pair"}
    np.testing.assert_array_equal(tree["posterior"]["pair"].values[0], draws["pair"])


def test_expectations_are_of_the_reported_values(posterior, key):
    total = posterior.expectation(lambda draw: jnp.sum(draw["pair"]), key=key, num_samples=256)
    np.testing.assert_allclose(total, 0.0, atol=1e-6)


def test_a_failed_check_shows_the_reported_values(key):
    broken = target(log_density=lambda theta: jnp.log(theta["mu"]))
    with pytest.raises(NonFiniteError, match=r"pair=\[.*share=\[.*because of leaf mu"):
        broken.check(key=key)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (3, "outputs is int, not a function"),
        (lambda theta: None, "(?s)outputs returns no arrays.*return statement"),
    ],
    ids=["number", "nothing"],
)
def test_bad_outputs(outputs, message):
    with pytest.raises(InputError, match=message):
        target(outputs=outputs)


def test_an_error_in_outputs_comes_through_with_a_note():
    with pytest.raises(KeyError, match="nu") as caught:
        target(outputs=lambda theta: theta["nu"])
    assert "raised by your outputs" in " ".join(caught.value.__notes__)
