"""E[exp(−F)] = Z exactly, for every number of steps, grid, drift and target."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import MLP
from follmer.objectives import OBJECTIVES, LogVariance, Problem
from follmer.paths import GRIDS, Diffusion, GaussianGuess, grid_times, h_transform, uniform

LOG_Z = 1.3
NUM_PATHS = 40_000


def gaussian(x):
    return LOG_Z + jnp.sum(jax.scipy.stats.norm.logpdf(x, jnp.array([0.5, -0.3]), 0.7))


def mixture(x):
    modes = jnp.array([[-0.8, 0.2], [0.7, 0.5]])
    log_densities = jnp.sum(jax.scipy.stats.norm.logpdf(x, modes, 0.6), axis=1)
    return LOG_Z + jax.nn.logsumexp(log_densities, b=jnp.array([0.3, 0.7]))


def random_drift(key):
    """An MLP whose last layer is not zero."""
    net = MLP(2, width=16, depth=2, key=key)
    leaves, treedef = jax.tree.flatten(net)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + 0.25 * jax.random.normal(one, leaf.shape)
        for leaf, one in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(treedef, noisy)


def gaussian_guess(drift, mean, scale):
    guess = GaussianGuess(drift, 2, jnp.result_type(float))
    return eqx.tree_at(
        lambda g: (g.mean, g.log_scale), guess, (jnp.array(mean), jnp.log(jnp.array(scale)))
    )


def problem(log_density, num_steps, grid, gamma=1.0, num_paths=NUM_PATHS):
    times = grid_times(GRIDS[grid], num_steps)
    return against_brownian(Diffusion(2, gamma, times, jnp.float32), log_density, num_paths)


def against_brownian(diffusion, log_density, num_paths):
    def log_factor(x):
        return log_density(x) - diffusion.log_reference(x)

    return Problem(diffusion, log_density, log_factor, num_paths)


def assert_mean_weight_is_evidence(log_weights):
    weights = np.exp(np.asarray(log_weights, float) - LOG_Z)
    se = weights.std() / np.sqrt(weights.size)
    # The weights vary (the test could fail) and their mean is known to a few per cent.
    assert 1e-3 < se < 0.05
    assert abs(weights.mean() - 1) < 4.5 * se


@pytest.mark.parametrize("log_density", [gaussian, mixture])
@pytest.mark.parametrize("grid", sorted(GRIDS))
@pytest.mark.parametrize("num_steps", [1, 2, 5, 20])
def test_mean_weight_is_the_evidence_for_every_k(num_steps, grid, log_density):
    drift = random_drift(jax.random.key(7))
    case = problem(log_density, num_steps, grid)
    paths = jax.jit(lambda key: case.simulate(drift, key))(jax.random.key(1))
    assert float(jnp.mean(paths.kl)) > 0.02
    assert_mean_weight_is_evidence(case.log_terminal(paths.end) + paths.log_ratio)


@pytest.mark.parametrize("grid", sorted(GRIDS))
@pytest.mark.parametrize("num_steps", [1, 2, 5, 20])
def test_mean_weight_is_the_evidence_for_steps_of_any_variance(num_steps, grid):
    guess = gaussian_guess(random_drift(jax.random.key(7)), [0.3, -0.2], [0.9, 1.1])
    case = problem(mixture, num_steps, grid)
    case = case._replace(diffusion=case.diffusion._replace(step=h_transform))
    paths = case.simulate(guess, jax.random.key(1))
    assert_mean_weight_is_evidence(case.log_terminal(paths.end) + paths.log_ratio)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("num_steps", [1, 2, 5, 20])
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_h_transform_steps_are_exact_for_gaussians_of_any_width(num_steps, gamma):
    mean, sd = [0.5, -3.0], [0.01, 100.0]
    guess = gaussian_guess(lambda t, x: jnp.zeros_like(x), mean, np.array(sd) / np.sqrt(gamma))
    diffusion = Diffusion(2, gamma, grid_times(uniform, num_steps), jnp.float64, h_transform)
    case = against_brownian(
        diffusion,
        lambda x: jnp.sum(jax.scipy.stats.norm.logpdf(x, jnp.array(mean), jnp.array(sd))),
        num_paths=100,
    )
    paths = case.simulate(guess, jax.random.key(0))
    log_weights = case.log_terminal(paths.end) + paths.log_ratio
    np.testing.assert_allclose(log_weights, 0.0, atol=1e-8)
    np.testing.assert_allclose(case.log_ratio(guess, paths), paths.log_ratio, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.8, 1.5])
def test_mean_weight_is_the_evidence_for_every_gamma(gamma):
    case = problem(gaussian, 5, "uniform", gamma)
    paths = case.simulate(random_drift(jax.random.key(0)), jax.random.key(1))
    assert_mean_weight_is_evidence(case.log_terminal(paths.end) + paths.log_ratio)


@pytest.mark.parametrize(
    "name", sorted(name for name, one in OBJECTIVES.items() if not one.has_memory)
)
def test_every_objective_reports_the_exact_weights(name):
    case = problem(mixture, 5, "uniform")
    drift, key = random_drift(jax.random.key(0)), jax.random.key(1)
    _, log_weights = OBJECTIVES[name].loss(drift, case, None, key)
    assert_mean_weight_is_evidence(log_weights)


def test_the_log_ratio_of_a_given_path_is_that_of_its_simulation():
    case = problem(gaussian, 7, "geometric", num_paths=16)
    drift = random_drift(jax.random.key(0))
    paths = case.simulate(drift, jax.random.key(1))
    np.testing.assert_allclose(case.log_ratio(drift, paths), paths.log_ratio, rtol=1e-4, atol=1e-4)


def test_off_policy_paths_are_scored_by_the_trained_drift():
    """Under paths of v, exp(−F_u) has mean Z once corrected by q_u/q_v."""
    case = problem(gaussian, 5, "uniform")
    drift, other = random_drift(jax.random.key(0)), random_drift(jax.random.key(5))
    objective = LogVariance(sampling_drift=other)
    _, log_weights = objective.loss(drift, case, None, jax.random.key(1))
    paths = case.simulate(other, jax.random.key(1))
    correction = case.log_ratio(other, paths) - case.log_ratio(drift, paths)
    assert_mean_weight_is_evidence(log_weights + correction)
