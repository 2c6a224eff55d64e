"""Modes, curvature, moves, tempering, and what they decide."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace as laplace_distribution
from jax.scipy.stats import norm

from follmer import InputError, Target
from follmer.mcmc import hmc
from follmer.mcmc.climbs import climb, spread_climbs
from follmer.mcmc.tempering import temper
from follmer.plans import PRECONDITIONERS, chains, warm_up
from follmer.plans.laplace import laplace
from follmer.plans.probing import probe
from follmer.targets.affine import diagonal

SD = np.array([1e-2, 1.0, 30.0])
MEAN = np.array([0.1, -2.0, 50.0])


def scaled(x):
    return jnp.sum(norm.logpdf(x, jnp.asarray(MEAN), jnp.asarray(SD)))


def two_modes(x):
    """Weights .3 and .7 at ∓6, sd .4."""
    terms = jnp.stack([norm.logpdf(x, -6.0, 0.4), norm.logpdf(x, 6.0, 0.4)])
    return jax.nn.logsumexp(terms.sum(axis=1), b=jnp.array([0.3, 0.7]))


def test_a_log_concave_density_has_one_mode(key):
    ends, found = spread_climbs(scaled, 3, jnp.float32, 8, key)
    assert found.sum() == 1
    np.testing.assert_allclose(np.abs(ends.x[0] - MEAN) / SD, 0.0, atol=0.2)


def test_separate_modes_are_told_apart_however_far(key):
    ends, found = spread_climbs(two_modes, 1, jnp.float32, 8, key)
    assert found.sum() == 2
    np.testing.assert_allclose(np.sort(np.asarray(ends.x)[found, 0]), [-6.0, 6.0], atol=0.01)


def test_climbs_that_stop_short_go_on(key, x64):
    """A regression on raw predictors is steep far away and has one mode."""
    columns = np.random.default_rng(0).normal(size=(50, 3)) * np.array([1e-2, 1.0, 1e3])
    response = columns @ np.ones(3)

    def regression(x):
        return jnp.sum(norm.logpdf(response, columns @ x[:3], jnp.exp(x[3]))) - x[3] ** 2

    _, found = spread_climbs(regression, 4, jnp.float64, 32, key)
    assert found.sum() == 1


@pytest.mark.parametrize(("drop", "expected"), [(10.0, 2), (100.0, 1)])
def test_modes_far_below_the_best_are_not_visited(key, drop, expected):
    def uneven(x):
        return -0.5 * (jnp.abs(x[0]) - 8.0) ** 2 - jnp.where(x[0] > 0, 0.0, drop)

    _, found = spread_climbs(uneven, 1, jnp.float32, 16, key)
    assert found.sum() == expected


def funnel(x):
    return norm.logpdf(x[0], 0.0, 3.0) + jnp.sum(norm.logpdf(x[1:], 0.0, jnp.exp(0.5 * x[0])))


def test_probes_tell_the_evidence_and_its_bound(key):
    target = Target(lambda x: jnp.sum(norm.logpdf(x, 1.0, 0.5)) + 3.0, like=jnp.zeros(4))
    exact = probe(target, diagonal(jnp.ones(4), np.full(4, 0.5), jnp.float32), key)
    np.testing.assert_allclose(exact, (3.0, 0.0), atol=1e-4)
    # Twice as wide: KL = ln ½ + (4 − 1)/2 in each coordinate.
    wide = probe(target, diagonal(jnp.ones(4), np.ones(4), jnp.float32), key)
    assert abs(wide.log_evidence - 3.0) < 0.15
    assert abs(wide.gap - 4 * (np.log(0.5) + 1.5)) < 0.5


def test_mass_far_from_the_mode_is_looked_for(key, monkeypatch):
    monkeypatch.setattr("follmer.plans.start.explored", lambda *given: given)
    *_, words = warm_up("auto", Target(funnel, like=jnp.zeros(4)), key)
    assert words == "the mass is not around the mode"


def test_laplace_is_exact_for_a_gaussian_of_mixed_scales():
    affine = laplace(scaled, jnp.asarray(MEAN + 0.1 * SD, jnp.float32), jnp.float32)
    z = jax.random.normal(jax.random.key(0), (64, 3))
    log_weights = jax.vmap(lambda z: scaled(affine(z)) + affine.log_det - norm.logpdf(z).sum())(z)
    np.testing.assert_allclose(log_weights, 0.0, atol=0.02)


def test_kinks_flat_and_rising_directions_get_a_finite_scale():
    def log_density(x):
        # A kink, a direction without any curvature, and one that curves upwards at 0.
        return laplace_distribution.logpdf(x[0]) + 0.0 * x[1] - (x[2] ** 2 - 1.0) ** 2

    scale = np.asarray(laplace(log_density, jnp.zeros(3), jnp.float32).scale)
    assert np.isfinite(scale).all()
    assert (scale > 0).all()
    # The Laplace distribution's own standard deviation is √2.
    assert 0.5 < scale[0] < 3.0


def test_moves_leave_the_target_as_it_is(key):
    start = 0.5 * jax.random.normal(key, (4096, 2))
    identity, step = jnp.eye(2), jnp.asarray(0.5)
    moved = hmc.move(lambda x: jnp.sum(norm.logpdf(x)), start, identity, step, 20, key)
    assert 0.5 < moved.acceptance < 1.0
    # 4 standard errors of a mean and a standard deviation.
    np.testing.assert_allclose(moved.particles.mean(axis=0), 0.0, atol=4 / 64)
    np.testing.assert_allclose(moved.particles.std(axis=0), 1.0, atol=4 / 64 / np.sqrt(2))


def test_tempering_weighs_modes_rightly(key):
    found = jax.jit(lambda key: temper(two_modes, jnp.zeros(1), jnp.full(1, 10.0), 2048, key))(key)
    assert found.reached == 1.0
    share = np.mean(np.asarray(found.particles) > 0)
    # Resampling adds noise at each temperature: 4 standard errors of a tenth as many draws.
    assert abs(share - 0.7) < 4 * np.sqrt(0.3 * 0.7 / 205)
    assert abs(found.log_evidence) < 0.2


def test_one_mode_is_whitened_and_several_are_explored(key):
    one = warm_up("auto", Target(scaled, like=jnp.zeros(3)), key)
    assert one.draws is None
    assert "one mode" in one.words
    several = warm_up("auto", Target(two_modes, like=jnp.zeros(1)), key)
    assert several.draws.shape[1] == 1
    assert "2 modes" in several.words


@pytest.mark.parametrize("name", sorted(set(PRECONDITIONERS) - {"auto", "explore", "identity"}))
def test_every_preconditioner_finds_a_gaussian(name, key):
    target = Target(
        log_prior=lambda x: jnp.sum(norm.logpdf(x, 0.0, 2.0)),
        log_likelihood=lambda x, batch: norm.logpdf(batch, jnp.sum(x), 3.0),
        data=jnp.zeros(4),
        like=jnp.zeros(2),
    )
    whitened = target.whitened(warm_up(name, target, key).affine)
    hessian = -np.asarray(jax.hessian(whitened.log_density)(jnp.zeros(2)))
    # By the prior the data's curvature, 2 · 4 · 4/9 beside 1, is left.
    largest = 1.0 + 32 / 9 if name == "prior" else 2.0
    assert np.linalg.eigvalsh(hessian).min() > 0.3
    assert np.linalg.eigvalsh(hessian).max() < 1.1 * largest


def test_a_wrong_preconditioner_is_an_error(key):
    target = Target(scaled, like=jnp.zeros(3))
    with pytest.raises(InputError, match=r"precondition='laplce'.*\n.*'laplace'"):
        warm_up("laplce", target, key)
    with pytest.raises(InputError, match="for 2 coordinates; the target has 3"):
        warm_up(diagonal(np.zeros(2), np.ones(2), jnp.float32), target, key)


def test_modes_without_number_are_not_explored(key):
    """2^24 signs: no two climbs meet, so one mode is sampled and the draws stay unaudited."""
    target = Target(lambda x: -jnp.sum((x**2 - 9.0) ** 2), like=jnp.zeros(24))
    start = warm_up("auto", target, key)
    assert start.is_partial
    assert start.draws is None
    assert "too many to visit" in start.words


def test_chains_find_the_mass_of_a_funnel_far_from_its_mode(key):
    """ln σ ~ N(0, .3²), 30 x ~ N(0, σ²): densest at ln σ = −30 × .3², 9 standard deviations off."""
    target = Target(
        lambda x: norm.logpdf(x[0], 0, 0.3) + jnp.sum(norm.logpdf(x[1:], 0, jnp.exp(x[0]))),
        like=jnp.zeros(31),
    )
    ends = climb(target.log_density, np.zeros((1, 31), np.float32))
    at_mode = laplace(target.log_density, jnp.asarray(ends.x[0]), target.dtype)
    before = probe(target, at_mode, key)
    assert before.elbo < -20  # of an evidence of 0
    wandered = chains.wander(target, at_mode, before, key)
    assert wandered.found.elbo > -3
    assert abs(float(wandered.affine.mean[0])) < 2 * 0.3
    assert wandered.gradient_evaluations > 0


def test_chains_leave_a_gaussian_as_it_is(key):
    target = Target(lambda x: -0.5 * jnp.sum(((x - 3.0) / 2.0) ** 2), like=jnp.zeros(4))
    affine = diagonal(np.full(4, 3.0), np.full(4, 2.0), target.dtype)
    wandered = chains.wander(target, affine, probe(target, affine, key), key)
    assert wandered.affine is affine
