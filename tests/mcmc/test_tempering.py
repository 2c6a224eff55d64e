"""Tempered particles."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import Target
from follmer.mcmc import tempering
from follmer.mcmc.tempering import temper
from follmer.targets import Density


def two_modes(x):
    """Weights .3 and .7 at ∓6, sd .4."""
    left = jnp.sum(norm.logpdf(x, -6.0, 0.4)) + jnp.log(0.3)
    return jnp.logaddexp(left, jnp.sum(norm.logpdf(x, 6.0, 0.4)) + jnp.log(0.7))


@pytest.fixture
def density():
    return Density(Target(two_modes, like=jnp.zeros(1)))


def test_modes_are_weighed_rightly(density, key):
    found = temper(density, np.zeros(1), np.full(1, 10.0), 2048, key)
    assert found.reached == 1.0
    share = np.mean(found.particles > 0)
    # Resampling adds noise at each temperature: 4 standard errors of a tenth as many draws.
    assert abs(share - 0.7) < 4 * np.sqrt(0.3 * 0.7 / 205)
    assert abs(found.log_evidence) < 0.2
    assert density.gradient_evaluations > 2048


def test_an_unfinished_tempering_says_so(density, key, monkeypatch):
    monkeypatch.setattr(tempering, "_MAX_TEMPERATURES", 1)
    found = temper(density, np.zeros(1), np.full(1, 1e4), 256, key)
    assert 0 < found.reached < 1
