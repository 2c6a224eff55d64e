"""The paper's Lemma: training against the prior's own process, with the likelihood alone."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import MLP, GaussianDrift
from follmer.objectives import OBJECTIVES, Problem, stl
from follmer.paths import (
    STEPS,
    Diffusion,
    GaussianGuess,
    Move,
    euler_maruyama,
    grid_times,
    on_top,
    simulate,
    uniform,
)

OBJECTIVE_NAMES = sorted(name for name, one in OBJECTIVES.items() if not one.has_memory)
PRIOR_MEAN, PRIOR_SD, NOISE_SD, SEEN = jnp.array([0.6]), 0.8, 0.7, 1.5
POSTERIOR_VARIANCE = 1 / (1 / PRIOR_SD**2 + 1 / NOISE_SD**2)
POSTERIOR_MEAN = POSTERIOR_VARIANCE * (PRIOR_MEAN / PRIOR_SD**2 + SEEN / NOISE_SD**2)
LOG_Z = float(jax.scipy.stats.norm.logpdf(SEEN, PRIOR_MEAN[0], np.sqrt(PRIOR_SD**2 + NOISE_SD**2)))


def log_likelihood(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(SEEN, x, NOISE_SD))


def random_drift(key, dim=2):
    """A network whose last layer is not zero, beside a guess that is not the reference."""
    net = MLP(dim, width=8, depth=1, key=key)
    guess = GaussianGuess(net, dim, jnp.result_type(float))
    leaves, treedef = jax.tree.flatten(guess)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + 0.2 * jax.random.normal(one, leaf.shape)
        for leaf, one in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(treedef, noisy)


def against_brownian(diffusion, log_density, num_paths):
    def log_factor(x):
        return log_density(x) - diffusion.log_reference(x)

    return Problem(diffusion, log_density, log_factor, num_paths)


def base_of(drift, step=euler_maruyama, gamma=1.0):
    return lambda t, dt, x: step(drift, gamma, t, dt, x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gamma", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_for_the_prior_of_observation_1_the_loss_is_its_loss(name, gamma):
    diffusion = Diffusion(2, gamma, grid_times(uniform, 5), jnp.float64, STEPS["h_transform"])

    def log_joint(x):
        return log_likelihood(x) + diffusion.log_reference(x)

    plain = against_brownian(diffusion, log_joint, 8)
    brownian = diffusion._replace(base=lambda t, dt, x: Move(jnp.zeros_like(x)))
    # The density is not looked at: training sees the likelihood alone.
    staged = Problem(brownian, lambda x: x[0] * jnp.nan, log_likelihood, 8)
    drift, key = random_drift(jax.random.key(1)), jax.random.key(2)

    def value_and_gradient(problem):
        arrays, rest = eqx.partition(drift, eqx.is_inexact_array)
        loss = jax.value_and_grad(
            lambda arrays: OBJECTIVES[name].loss(eqx.combine(arrays, rest), problem, None, key)[0]
        )
        return jax.jit(loss)(arrays)

    one, two = map(value_and_gradient, (plain, staged))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["det", "relative_entropy"])
def test_the_mean_loss_is_the_kl_from_the_reference_less_the_likelihood(name):
    """E[ (1/2γ)∫|u − u⁰|² dt − ln p(X|Θ_1) ], by hand for constant drifts."""
    gamma, prior_u, extra_u = 0.5, 0.7, -1.5
    diffusion = Diffusion(1, gamma, grid_times(uniform, 4), jnp.float32)
    base = base_of(lambda t, x: jnp.full_like(x, prior_u), gamma=gamma)
    problem = Problem(diffusion._replace(base=base), log_likelihood, log_likelihood, 40_000)
    loss, log_weights = OBJECTIVES[name].loss(
        lambda t, x: jnp.full_like(x, extra_u), problem, None, jax.random.key(0)
    )
    # Θ_1 ~ N(prior_u + extra_u, γ).
    misfit = ((SEEN - prior_u - extra_u) ** 2 + gamma) / (2 * NOISE_SD**2)
    expected = extra_u**2 / (2 * gamma) + misfit + 0.5 * np.log(2 * np.pi * NOISE_SD**2)
    se = float(jnp.std(log_weights)) / 200
    assert abs(float(loss) - expected) < 4.5 * se < 0.2


@pytest.mark.usefixtures("x64")
def test_the_minimiser_is_the_prior_drift_plus_the_gradient_of_the_likelihood_seen_ahead():
    """At u* = u⁰ + γ∇ ln E[p(X|Θ_1)|Θ_t] all paths weigh p(X), as the steps grow small."""
    prior = GaussianDrift(PRIOR_MEAN, PRIOR_SD**2 * jnp.eye(1))
    posterior = GaussianDrift(POSTERIOR_MEAN, POSTERIOR_VARIANCE * jnp.eye(1))

    def weights(num_steps, extra):
        diffusion = Diffusion(1, 1.0, grid_times(uniform, num_steps), jnp.float64)
        diffusion = diffusion._replace(base=base_of(prior))
        problem = Problem(diffusion, log_likelihood, log_likelihood, 2000)
        return np.asarray(jax.jit(lambda key: stl(extra, problem, key)[1])(jax.random.key(0)))

    steps = (10, 40, 160)
    found = [weights(k, lambda t, x: posterior(t, x) - prior(t, x)) for k in steps]
    for coarse, fine in itertools.pairwise(found):
        assert fine.std() < 0.6 * coarse.std()
    assert found[-1].std() < 0.1
    assert abs(found[-1].mean() - LOG_Z) < 0.01
    # As the paper prints it, without u⁰, it is not.
    assert weights(160, posterior).std() > 0.3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rule", sorted(STEPS))
def test_the_score_against_brownian_motion_is_the_sum_of_both_stages_scores(rule):
    first, second = random_drift(jax.random.key(1)), random_drift(jax.random.key(2))
    base = base_of(first, STEPS[rule])
    staged = Diffusion(2, 1.0, grid_times(uniform, 5), jnp.float64, STEPS[rule], base=base)
    whole = staged._replace(step=on_top(base, STEPS[rule]), base=None)
    noise = staged.noise(jax.random.key(3))
    relative, exact = simulate(second, staged, noise), simulate(second, whole, noise)
    np.testing.assert_allclose(relative.end, exact.end, rtol=1e-10)
    np.testing.assert_allclose(relative.states, exact.states, rtol=1e-10)
    below = Problem(whole._replace(step=STEPS[rule]), log_likelihood, log_likelihood, 1)
    paths = jax.tree.map(lambda leaf: leaf[None], exact)
    of_first = below.log_ratio(first, paths)[0]
    np.testing.assert_allclose(relative.log_ratio + of_first, exact.log_ratio, rtol=1e-9)
    assert abs(float(of_first)) > 1e-2


@pytest.mark.parametrize("rule", sorted(STEPS))
@pytest.mark.parametrize("num_steps", [1, 5])
def test_mean_weight_is_the_evidence_however_wrong_the_first_stage(num_steps, rule):
    base = base_of(random_drift(jax.random.key(7)), STEPS[rule])
    step = on_top(base, STEPS[rule])
    diffusion = Diffusion(2, 1.0, grid_times(uniform, num_steps), jnp.float32, step)

    def log_density(x):
        return 1.3 + jnp.sum(jax.scipy.stats.norm.logpdf(x, jnp.array([0.5, -0.3]), 0.7))

    problem = against_brownian(diffusion, log_density, 40_000)
    paths = problem.simulate(random_drift(jax.random.key(8)), jax.random.key(1))
    log_weights = problem.log_terminal(paths.end) + paths.log_ratio
    weights = np.exp(np.asarray(log_weights, float) - 1.3)
    se = weights.std() / 200
    assert 1e-3 < se < 0.05
    assert abs(weights.mean() - 1) < 4.5 * se
