"""What single precision does to a log density, and that it is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import Target
from follmer.audit import precision_note, rounding_noise


def far_from_origin(offset):
    """A normal density, written so that squares of a large offset must cancel."""
    return Target(
        lambda x: -0.5 * jnp.sum((x + offset) ** 2 - 2 * offset * x - offset**2),
        like=jnp.zeros(3, jnp.float32),
    )


@pytest.fixture
def draws(key):
    return jax.random.normal(key, (64, 3), jnp.float32)


def test_rounding_is_measured(draws, key):
    # Near 1e6 floats are 2⁻⁴ apart; a handful of such roundings are made.
    noise = rounding_noise(far_from_origin(1e3), draws, key)
    assert 2.0**-4 / np.sqrt(12) < np.sqrt(np.mean(noise**2)) < 8 * 2.0**-4


def test_a_blurred_density_is_told(draws, key):
    assert "jax_enable_x64" in precision_note(far_from_origin(1e4), draws, key)


def test_a_sound_density_is_not(draws, key):
    assert precision_note(far_from_origin(0.0), draws, key) is None


@pytest.mark.usefixtures("x64")
def test_double_precision_is_never_blamed(key):
    target = Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(3))
    assert precision_note(target, jax.random.normal(key, (8, 3)), key) is None
