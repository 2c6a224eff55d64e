"""Draws of a mixture that are chosen among candidates: exact, and nearer to the target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer import Target
from follmer.drifts import GaussianMixture
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import MixtureFlow, log_weights_to
from follmer.tools.keys import key_rows

MEAN, SD, LOG_EVIDENCE, NUM_DRAWS = 0.5, 0.8, 0.7, 20_000


def density(x):
    return jax.scipy.stats.norm.logpdf(x[0], MEAN, SD) + LOG_EVIDENCE


def chosen_of(candidates, shares=(1.0,), means=(0.0,)):
    """A flow of unit width that is off the target's mean, and wider."""
    target = Target(density, like=jnp.zeros(1))
    count = len(means)
    mixture = GaussianMixture(
        np.array(shares), np.array(means)[:, None], np.ones((count, 1, 1)), target.dtype
    )
    return Posterior(target, MixtureFlow(target, mixture, candidates), progress=False)


def weighed(posterior, key):
    x, logs = posterior.flat_sample(NUM_DRAWS, key=key)
    return np.asarray(x, float)[:, 0], np.exp(np.asarray(logs, float))


@pytest.mark.parametrize("candidates", [1, 2, 4])
def test_weights_stay_exact(candidates, key):
    x, weights = weighed(chosen_of(candidates), key)
    evidence = np.exp(LOG_EVIDENCE)
    assert abs(weights.mean() - evidence) < 4 * weights.std() / np.sqrt(NUM_DRAWS)
    # E[w (x − μ)] = 0 and E[w ((x − μ)² − σ²)] = 0.
    for moment in (x - MEAN, (x - MEAN) ** 2 - SD**2):
        values = weights * moment
        assert abs(values.mean()) < 4 * values.std() / np.sqrt(NUM_DRAWS)


def test_plain_draws_and_bounds_come_nearer(key):
    biases, lower, upper = [], [], []
    ends = MEAN + SD * np.asarray(jax.random.normal(key, (NUM_DRAWS, 1)))
    for candidates in (1, 4):
        posterior = chosen_of(candidates)
        x, weights = weighed(posterior, key)
        logs = log_weights_to(posterior.sampler, ends, key_rows(key, NUM_DRAWS))
        biases.append(abs(x.mean() - MEAN))
        lower.append(np.log(weights).mean() - LOG_EVIDENCE)
        upper.append(np.asarray(logs, float).mean() - LOG_EVIDENCE)
    noise = 1.0 / np.sqrt(NUM_DRAWS)
    assert biases[1] < 0.5 * biases[0] - 4 * noise
    assert lower[0] < 2 * lower[1] < 0 < 2 * upper[1] < upper[0]


def test_a_candidate_of_no_weight_is_no_draw(key):
    """One draw of a hundred is far out: its weight is 0, yet plain draws of the first have it."""
    shares, means = (0.99, 0.01), (0.0, 60.0)
    farthest = [weighed(chosen_of(count, shares, means), key)[0].max() for count in (1, 4)]
    assert farthest[0] > 50
    assert farthest[1] < 6


def test_the_number_of_candidates_is_saved(key, tmp_path):
    posterior = chosen_of(4)
    posterior.save(tmp_path / "run")
    loaded = follmer.load(tmp_path / "run", posterior.target)
    assert loaded.sampler.candidates == 4
    np.testing.assert_array_equal(
        loaded.flat_sample(50, key=key)[0], posterior.flat_sample(50, key=key)[0]
    )
