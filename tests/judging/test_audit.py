"""What single precision does to a log density, and that it is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import Target
from follmer.judging.audit import missed_modes, precision_note, rounding_noise
from follmer.targets.affine import diagonal


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


def two_normals(x):
    """Modes at ±8, the right one with three quarters of the mass."""
    logs = jnp.log(jnp.array([0.75, 0.25])) - 0.5 * (x[0] - jnp.array([8.0, -8.0])) ** 2
    return jax.nn.logsumexp(logs) - 0.5 * jnp.log(2 * jnp.pi)


@pytest.mark.parametrize("whitening", [None, diagonal([8.0], [1.0], jnp.float32)])
@pytest.mark.parametrize(
    ("centres", "log_evidence", "missed"),
    [([8.0], np.log(0.75), 1), ([-8.0], np.log(0.25), 1), ([8.0, -8.0], 0.0, 0)],
    ids=["right", "left", "both"],
)
def test_a_mode_that_no_draw_visits_is_missed(centres, log_evidence, missed, whitening, key):
    target = Target(two_normals, like=jnp.zeros(1, jnp.float32)).whitened(whitening)
    x = jnp.concatenate([centre + jax.random.normal(key, (100, 1)) for centre in centres])
    x = x if whitening is None else jax.vmap(whitening.inverse)(x)
    assert missed_modes(target, x, log_evidence, 100.0, key) == missed


def test_a_mode_without_mass_is_not_missed(key):
    def lopsided(x):
        logs = jnp.array([0.0, -10.0]) - 0.5 * (x[0] - jnp.array([8.0, -8.0])) ** 2
        return jax.nn.logsumexp(logs)

    target = Target(lopsided, like=jnp.zeros(1, jnp.float32))
    x = 8.0 + jax.random.normal(key, (100, 1))
    assert missed_modes(target, x, 0.5 * np.log(2 * np.pi), 100.0, key) == 0
