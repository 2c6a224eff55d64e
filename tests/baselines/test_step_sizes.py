import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

from follmer import InputError, PolynomialDecay, Target
from follmer.baselines.step_sizes import as_step_sizes
from follmer.targets.affine import from_covariance

LIKE = {"abundances": jnp.zeros((2, 3)), "nested": {"a": 0.0, "b": jnp.zeros(2)}}
CONSTRAINTS = {"abundances": constraints.simplex}


def target(**options):
    return Target(lambda theta: -jnp.sum(theta["nested"]["b"] ** 2), LIKE, CONSTRAINTS, **options)


def sizes(step_size, iteration=0, on=None):
    return np.asarray(as_step_sizes(step_size, on or target(), 100)(jnp.asarray(iteration)))


def test_polynomial_decay_has_the_papers_values():
    schedule = PolynomialDecay(1e-3)
    expected = [1e-3 / 10**0.55, 1e-3 / 110**0.55]
    np.testing.assert_allclose([schedule(0), schedule(100)], expected, rtol=1e-12)
    np.testing.assert_allclose(PolynomialDecay(2.0, b=1, c=1)(3), 0.5)


def test_a_schedule_is_compared_and_shown_by_its_values():
    assert PolynomialDecay(1) == PolynomialDecay(1.0, 10, 0.55)
    assert repr(PolynomialDecay(1)) == "PolynomialDecay(a=1.0, b=10.0, c=0.55)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"a": 0.0}, "a must be a finite number above 0"),
        ({"a": 1, "b": -1}, "b must be a finite number above 0"),
        ({"a": 1, "c": "half"}, "c must be a finite number above 0"),
        ({"a": 1, "d": 2}, "'d' is not an option"),
        ({}, "missing a required argument: 'a'"),
    ],
)
def test_bad_schedules(options, message):
    with pytest.raises(InputError, match=message):
        PolynomialDecay(**options)


def test_numbers_and_functions_hold_for_all_coordinates():
    np.testing.assert_allclose(sizes(0.25, 7), 0.25)
    np.testing.assert_allclose(sizes(lambda i: 1.0 / (1 + i), 3), 0.25)


def test_each_leaf_has_its_own_step_size_on_its_own_free_coordinates():
    # Two simplices of three have two free coordinates each.
    found = sizes({"abundances": PolynomialDecay(1.0), "nested": {"a": 0.5, "b": 0.25}}, 90)
    np.testing.assert_allclose(found, [100**-0.55] * 4 + [0.5] + [0.25] * 2, rtol=1e-6)


def test_one_step_size_may_stand_for_a_branch():
    found = sizes({"abundances": 2.0, "nested": 0.5})
    np.testing.assert_allclose(found, [2.0] * 4 + [0.5] * 3)


def test_the_default_shrinks_with_the_data():
    data = Target(
        log_prior=lambda x: -jnp.sum(x**2),
        log_likelihood=lambda x, rows: -(rows * x[0]),
        data=jnp.ones(50),
        like=jnp.zeros(2),
    )
    alone = Target(lambda x: -jnp.sum(x**2), jnp.zeros(2))
    np.testing.assert_allclose(sizes(None, on=alone), 10 / 1000**0.55, rtol=1e-6)
    np.testing.assert_allclose(sizes(None, on=data), sizes(None, on=alone) / 50, rtol=1e-6)


@pytest.mark.parametrize(
    ("step_size", "message"),
    [
        (0.0, "step_size must be a finite number above 0"),
        ("fast", "step_size must be a finite number above 0"),
        (lambda i: -0.1, "step_size at iteration 0 must be a finite number above 0"),
        (lambda i: 0.5 - 0.01 * i, "step_size at iteration 99 must be"),
        (lambda i: jnp.ones(2), "step_size at iteration 0 must be"),
        ({"abundances": 0.1, "nested": {"a": 0.1, "b": -1}}, "step_size of nested.b must be"),
        ({"abundances": 0.1}, "(?s)step_size does not fit.*abundances, nested.a, nested.b"),
        ({"abundance": 0.1, "nested": 0.1}, "step_size does not fit the tree of `like`"),
        ([0.1, 0.2], "step_size does not fit the tree of `like`"),
        ({"abundances": None, "nested": 0.1}, "step_size does not fit the tree of `like`"),
    ],
)
def test_bad_step_sizes(step_size, message):
    with pytest.raises(InputError, match=message):
        sizes(step_size)


def test_leaves_that_whitening_has_mixed_have_no_step_sizes_of_their_own():
    dim = target().dim
    white = target().whitened(from_covariance(np.zeros(dim), np.eye(dim), jnp.float32))
    np.testing.assert_allclose(sizes(0.5, on=white), 0.5)
    with pytest.raises(InputError, match="whitening has mixed the leaves"):
        sizes({"abundances": 0.1, "nested": 0.1}, on=white)
