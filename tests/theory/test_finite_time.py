"""Huang et al.'s example: Euler–Maruyama reaches a Gaussian at t = 1, Langevin dynamics does not.

For the target N(m, I) and γ = 1 the Föllmer drift is m, everywhere and always, so one step is as
good as a thousand. k steps of Langevin dynamics from 0, of any length, end somewhere else.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.drifts import GaussianDrift
from follmer.objectives import Problem
from follmer.paths import Diffusion, grid_times, uniform

MEAN = jnp.array([4.0, -3.0])
NUM_STEPS = 20
NUM_CHAINS = 4000


def log_density(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, MEAN))


def langevin_moments(step_size, num_steps):
    """Of x ← x + (λ/2)(m − x) + √λ ξ from 0: the share of m that is reached, and the variance."""
    kept = 1.0 - step_size / 2.0
    noise = step_size * sum(kept ** (2 * j) for j in range(num_steps))
    return 1.0 - kept**num_steps, noise


def kl_from_target(share, variance):
    """KL( N(share·m, variance·I) ‖ N(m, I) )."""
    shift = (1.0 - share) ** 2 * float(jnp.sum(MEAN**2))
    return 0.5 * (shift + len(MEAN) * (variance - 1.0 - np.log(variance)))


@pytest.mark.parametrize("num_steps", [1, 2, NUM_STEPS])
def test_euler_maruyama_with_the_foellmer_drift_ends_in_the_gaussian(num_steps):
    diffusion = Diffusion(2, 1.0, grid_times(uniform, num_steps), jnp.float32)
    problem = Problem(
        diffusion, log_density, lambda x: log_density(x) - diffusion.log_reference(x), NUM_CHAINS
    )
    paths = problem.simulate(GaussianDrift(MEAN, jnp.eye(2)), jax.random.key(0))
    # Every path weighs ln Z = 0: the end's law is the target's own. Rounding alone is left.
    np.testing.assert_allclose(problem.log_terminal(paths.end) + paths.log_ratio, 0.0, atol=1e-4)
    error = np.asarray(paths.end).mean(axis=0) - MEAN
    assert (np.abs(error) < 4.5 / np.sqrt(NUM_CHAINS)).all()


@pytest.mark.parametrize("step_size", [0.05, 0.4, 1.5])
def test_langevin_dynamics_is_elsewhere_after_as_many_steps(step_size):
    chains = follmer.sgld(
        follmer.Target(log_density, like=jnp.zeros(2)),
        key=jax.random.key(0),
        step_size=step_size,
        num_iterations=NUM_STEPS,
        burn_in=NUM_STEPS - 1,
        thinning=1,
        num_chains=NUM_CHAINS,
        start=jnp.zeros(2),
        progress=False,
    )
    ends = np.asarray(chains.sampler.draws).reshape(NUM_CHAINS, 2)
    share, variance = langevin_moments(step_size, NUM_STEPS)
    se = np.sqrt(variance / NUM_CHAINS)
    assert (np.abs(ends.mean(axis=0) - share * MEAN) < 4.5 * se).all()
    # A sample variance of n Gaussians has relative se √(2/n).
    assert (np.abs(ends.var(axis=0) / variance - 1) < 4.5 * np.sqrt(2 / NUM_CHAINS)).all()
    # Monte-Carlo error aside, by 1 % of the mean's length or by 10 % of the variance.
    assert share < 0.99 or variance > 1.1


# KL from the target by number of steps, at the best step size (20: λ = .41, variance 1.11).
LEAST = {1: 0.2876, 5: 0.0575, 20: 0.00735}


@pytest.mark.parametrize("num_steps", sorted(LEAST))
def test_no_step_size_brings_langevin_dynamics_there(num_steps):
    # Beyond 4 it diverges.
    sizes = np.linspace(0.001, 3.999, 4000)
    divergences = [kl_from_target(*langevin_moments(size, num_steps)) for size in sizes]
    assert abs(min(divergences) / LEAST[num_steps] - 1) < 0.01
