"""Whether weighted draws agree with those of Markov chains, within Monte-Carlo error of both."""

import jax
import numpy as np
from arviz_stats.base import array_stats

from follmer.judging import pareto_smooth


def assert_agrees(posterior, chains, *, seed=1):
    """Means and second moments of every number; `chains` has arrays of (chain, draw, …) by name."""
    draws = posterior.weighted_sample(8192, key=jax.random.key(seed))
    weights = np.exp(pareto_smooth(draws.log_weights)[0])
    effective = 1 / np.sum(weights**2)
    assert effective > 1000
    assert set(draws.position) == set(chains)
    for name, value in draws.position.items():
        theirs = np.asarray(chains[name], float)
        theirs = theirs.reshape(*theirs.shape[:2], -1)
        ours = np.asarray(value, float).reshape(len(weights), -1)
        for i in range(ours.shape[1]):
            _assert_alike(f"{name}[{i}]", ours[:, i], weights, theirs[:, :, i], effective)


def _assert_alike(name, ours, weights, theirs, effective):
    """Of the values, and of their squares about the mean."""
    centre = theirs.mean()
    for power in (1, 2):
        a, b = (ours - centre) ** power, (theirs - centre) ** power
        mean = weights @ a
        error = np.sqrt(weights @ (a - mean) ** 2 / effective)
        ess = array_stats.ess(b, chain_axis=0, draw_axis=1, method="mean")
        difference = abs(mean - b.mean()) / np.hypot(error, b.std() / np.sqrt(ess))
        # Some forty comparisons: a normal exceeds four in one of 16 000.
        assert difference < 4, f"{name}, power {power}: {difference:.1f} standard errors apart"
