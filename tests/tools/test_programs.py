"""Compiled functions and how many programs they keep."""

import jax.numpy as jnp
import numpy as np

from follmer.mcmc.hmc import advance
from follmer.posterior.samplers import draw, log_weights_to
from follmer.targets import values_and_gradients
from follmer.tools import programs


def test_programs_are_kept_until_there_are_very_many(monkeypatch):
    monkeypatch.setattr(programs, "_COMPILED", [])
    monkeypatch.setattr(programs, "_MOST", 2)

    @programs.compiled
    def doubled(x):
        return 2 * x

    for size in (1, 2):
        np.testing.assert_array_equal(doubled(jnp.ones(size)), np.full(size, 2.0))
    programs.tidy()
    assert doubled._cached._cache_size() == 2
    doubled(jnp.ones(3))
    programs.tidy()
    assert doubled._cached._cache_size() == 0
    np.testing.assert_array_equal(doubled(jnp.ones(2)), [2.0, 2.0])


def test_the_librarys_programs_are_known():
    known = {id(one) for one in programs._COMPILED}
    assert {id(one) for one in (values_and_gradients, advance, draw, log_weights_to)} <= known
