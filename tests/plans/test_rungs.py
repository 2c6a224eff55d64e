"""Each rung of the ladder on toy targets, and which rungs are tried."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import InputError, StructuredTarget, Target
from follmer.plans import POLICY, RUNGS, Survey, UnreachableError, ladder
from follmer.plans.rungs import mixture
from follmer.posterior.samplers import MixtureFlow, draw
from follmer.targets.affine import diagonal
from follmer.tools.keys import key_rows
from follmer.tools.modules import replaced


def two_modes(x):
    """Weights .3 and .7 at ∓6, sd .4."""
    left = jnp.sum(norm.logpdf(x, -6.0, 0.4)) + jnp.log(0.3)
    return jnp.logaddexp(left, jnp.sum(norm.logpdf(x, 6.0, 0.4)) + jnp.log(0.7))


@pytest.fixture(scope="module")
def gaussian():
    return Target(
        log_prior=lambda x: jnp.sum(norm.logpdf(x, 0.0, 2.0)),
        log_likelihood=lambda x, batch: norm.logpdf(batch, jnp.sum(x), 3.0),
        data=jnp.zeros(4),
        like=jnp.zeros(2),
    )


def names(precondition, target, key, **options):
    return [name for name, _ in ladder(precondition, Survey(target, key), options)]


def test_by_default_a_mixture_is_tried_before_a_flow_and_chains_are_left_for_last(gaussian, key):
    assert names("auto", gaussian, key) == ["mixture", "flow", "chains"]


def one_sided(x):
    """A density that is steep on one side alone, far from 0: its curvature misleads."""
    z = (x - 1000.0) / 100.0
    return -0.5 * jnp.sum(z**2) + jnp.sum(jax.nn.log_sigmoid(30.0 * z))


@pytest.fixture(scope="module")
def expensive():
    """A policy that takes a few coordinates for many, and their chains for long ones."""
    return dataclasses.replace(POLICY, max_explored=2, moderate_chain_budget=1.0)


def test_long_chains_come_before_a_flow_that_is_unlikely_to_arrive(expensive, key):
    survey = Survey(Target(one_sided, like=jnp.zeros(30)), key, policy=expensive)
    assert [name for name, _ in ladder("auto", survey, {})] == ["mixture", "chains", "flow"]
    plan = mixture(survey, key)
    assert survey.population is None
    assert "by its curvature" in plan.why
    draws = RUNGS["chains"](survey, key).sampler.draws
    grid = np.linspace(-5.0, 8.0, 10_001)
    shares = np.exp(-0.5 * grid**2 - np.logaddexp(0.0, -30.0 * grid))
    mean = shares @ grid / shares.sum()
    sd = np.sqrt(shares @ (grid - mean) ** 2 / shares.sum())
    z = (draws - 1000.0) / 100.0
    # Each of 64 chains is worth a draw at least. The mode is at .17, .63 away.
    assert abs(np.mean(z) - mean) < 4.0 * sd / np.sqrt(30 * 64)
    assert abs(np.std(z) / sd - 1.0) < 0.1


def test_a_flow_comes_first_where_the_curvature_is_right(expensive, key):
    normal = Target(lambda x: -0.5 * jnp.sum((x - 1.0) ** 2), like=jnp.zeros(3))
    survey = Survey(normal, key, policy=expensive)
    with pytest.raises(UnreachableError, match="no single set of chains"):
        RUNGS["chains"](survey, key)
    assert RUNGS["flow"](survey, key).why.endswith("whitened by curvature")


@pytest.mark.parametrize("option", ["drift", "objective", "gamma", "num_steps", "step_rule"])
def test_what_describes_a_trained_process_leaves_the_mixture_out(gaussian, key, option):
    assert names("auto", gaussian, key, **{option: None}) == ["flow"]


@pytest.mark.parametrize("option", ["num_iterations", "batch_size", "learning_rate", "num_paths"])
def test_what_only_training_uses_does_not(gaussian, key, option):
    assert names("auto", gaussian, key, **{option: None}) == ["mixture", "flow", "chains"]


@pytest.mark.parametrize("name", ["mixture", "flow", "chains", "explore", "identity", "laplace"])
def test_a_rung_may_be_named(gaussian, key, name):
    assert names(name, gaussian, key) == [name]


def test_too_many_dimensions_are_taken_as_independent(key):
    wide = Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(3001))
    assert names("auto", wide, key) == ["mean_field"]


def test_options_that_a_mixture_cannot_honour_are_refused(gaussian, key):
    with pytest.raises(InputError, match=r"'mixture' cannot honour drift, gamma"):
        names("mixture", gaussian, key, gamma=1.0, drift="mlp")


def test_a_wrong_precondition_is_an_error(gaussian, key):
    with pytest.raises(InputError, match=r"precondition='laplce'.*\n.*'laplace'"):
        names("laplce", gaussian, key)
    with pytest.raises(InputError, match="for 3 coordinates; the target has 2"):
        names(diagonal(np.zeros(3), np.ones(3), jnp.float32), gaussian, key)


def test_a_given_affine_map_is_the_only_rung_and_is_used(gaussian, key):
    affine = diagonal(np.array([1.0, -1.0]), np.array([2.0, 0.5]), jnp.float32)
    survey = Survey(gaussian, key)
    ((name, rung),) = ladder(affine, survey, {})
    plan = rung(survey, key)
    assert (name, plan.rung) == ("given", "given")
    assert plan.target.affine is affine


@pytest.fixture(scope="module")
def structured():
    return StructuredTarget(
        log_prior_global=lambda phi: norm.logpdf(phi["m"]),
        log_prior_local=lambda theta, phi: norm.logpdf(theta["b"], phi["m"]),
        log_likelihood=lambda theta, phi, x: norm.logpdf(x, theta["b"]),
        data=jnp.linspace(-1.0, 1.0, 6),
        like_global={"m": 0.0},
        like_local={"b": 0.0},
    )


def test_locals_have_a_rung_of_their_own(structured, key):
    assert names("auto", structured, key) == ["structured"]
    assert names("identity", structured, key) == ["identity"]
    with pytest.raises(InputError, match="is not for structured targets"):
        names("mixture", structured, key)


@pytest.mark.parametrize("name", ["flow", "prior", "diagonal", "laplace", "explore"])
def test_every_coordinate_system_suits_a_gaussian(name, gaussian, key):
    plan = RUNGS[name](Survey(gaussian, key), key)
    assert plan.rung == name
    hessian = -np.asarray(jax.hessian(plan.target.log_density)(jnp.zeros(2)))
    # By the prior the data's curvature, 2 · 4 · 4/9 beside 1, is left.
    largest = 1.0 + 32 / 9 if name == "prior" else 2.0
    assert np.linalg.eigvalsh(hessian).min() > 0.3
    assert np.linalg.eigvalsh(hessian).max() < 1.1 * largest


def test_the_mixture_of_a_gaussian_is_exact(gaussian, key):
    plan = mixture(Survey(gaussian, key), key)
    assert isinstance(plan.sampler, MixtureFlow)
    _, log_weights = draw(plan.sampler, key_rows(key, 64), None)
    # ln Z of a normal likelihood of four zeros whose mean is N(0, 8): N(0 | 0, 9 I + 8 11ᵀ).
    covariance = 9.0 * np.eye(4) + 8.0
    exact = -0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(log_weights, exact, atol=2e-3)


def test_the_mixture_covers_far_modes(key):
    plan = mixture(Survey(Target(two_modes, like=jnp.zeros(3)), key), key)
    x, log_weights = draw(plan.sampler, key_rows(key, 2048), None)
    share = np.mean(np.asarray(plan.target.affine.rows(np.asarray(x)))[:, 0] > 0)
    assert abs(share - 0.7) < 4 * np.sqrt(0.21 / 2048) + 0.02
    weights = np.exp(np.asarray(log_weights, float))
    assert weights.sum() ** 2 / np.sum(weights**2) / 2048 > 0.95
    assert abs(np.log(weights.mean())) < 0.02
    assert "2 modes" in plan.why


def test_without_a_population_the_curvature_at_the_mode_serves(gaussian, key):
    survey = Survey(replaced(gaussian, gradient_cost=1e12), key)
    assert survey.population is None
    plan = mixture(survey, key)
    assert "one Gaussian by its curvature" in plan.why
    _, log_weights = draw(plan.sampler, key_rows(key, 64), None)
    assert np.ptp(np.asarray(log_weights)) < 0.01


def test_without_a_mode_there_is_no_mixture(key):
    nowhere = Target(lambda x: jnp.sum(x) * jnp.nan, like=jnp.zeros(2))
    with pytest.raises(UnreachableError):
        mixture(Survey(nowhere, key), key)


def test_several_modes_are_learned_from_draws_and_one_from_paths(gaussian, key):
    several = RUNGS["flow"](Survey(Target(two_modes, like=jnp.zeros(1)), key), key)
    assert several.draws is not None
    assert several.algorithm({}).objective.has_memory
    one = RUNGS["flow"](Survey(gaussian, key), key)
    assert one.draws is None
    assert one.algorithm({"num_paths": 3}).num_paths == 3


def test_an_exploration_that_does_not_arrive_says_so(key, monkeypatch):
    monkeypatch.setattr("follmer.mcmc.tempering._MAX_TEMPERATURES", 1)
    plan = RUNGS["explore"](Survey(Target(two_modes, like=jnp.zeros(1)), key), key)
    assert "of the way" in plan.why


def test_countless_modes_are_tempered(key):
    survey = Survey(Target(lambda x: -jnp.sum((x**2 - 4.0) ** 2), like=jnp.zeros(12)), key)
    assert survey.modes.are_countless
    assert survey.population.rhat == 1.0
    x = survey.population.draws(4096, np.random.default_rng(0))
    # Every sign is as likely as the other; particles that descend from others repeat them.
    np.testing.assert_allclose(np.mean(x > 0, axis=0), 0.5, atol=0.15)
