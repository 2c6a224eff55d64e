"""A fit that did not reach the posterior is tried again by exploration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target, fit
from follmer.fitting.second_try import second_try
from follmer.targets.affine import diagonal

TARGET = Target(lambda x: jnp.sum(norm.logpdf(x, 5.0, 0.1)), like=jnp.zeros(2))
OPTIONS = {"num_iterations": 1, "num_steps": 4, "progress": False, "audit": False}


@pytest.fixture(scope="module")
def poor():
    return fit(TARGET, key=jax.random.key(0), precondition="identity", **OPTIONS)


@pytest.fixture(scope="module")
def good():
    exact = diagonal(jnp.full(2, 5.0), np.full(2, 0.1), jnp.float32)
    return fit(TARGET, key=jax.random.key(0), precondition=exact, **OPTIONS)


def test_what_can_be_used_is_kept(good, key):
    def explore(key):
        raise AssertionError("not called")

    assert second_try(good, explore, key) is good


def test_an_exploration_that_succeeds_replaces_the_first(poor, good, key):
    found = second_try(poor, lambda key: good, key)
    assert found.sampler is good.sampler
    assert found.notes[-1] == "draws from the mode did not reach the posterior"
    both = poor.gradient_evaluations + good.gradient_evaluations
    assert found.gradient_evaluations == both


def test_where_both_fail_the_first_is_kept_and_says_so(poor, key):
    found = second_try(poor, lambda key: poor, key)
    assert found.sampler is poor.sampler
    assert found.notes[-1] == "an exploration did not reach the posterior either"
