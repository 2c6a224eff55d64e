"""The verdict does not lie: what it trusts is right, also after too little training."""

import jax
import numpy as np
import pytest

import follmer
from follmer.bench.targets import CASES
from follmer.judging import Verdict, diagnose, judge, pareto_smooth

# Targets with known evidence that need no files.
NAMES = ["mixed_scales", "double_well", "many_well", "mixture2", "mixture4", "gmm25", "funnel"]
NUM_DRAWS = 10_000
SETTINGS = {
    "default": {},
    "short": {"num_iterations": 50},
    "own coordinates": {"precondition": "identity", "num_iterations": 300},
    "one mode": {"precondition": "laplace", "num_iterations": 200},
    "few steps": {"precondition": "laplace", "num_steps": 2, "num_iterations": 100},
}


def means(name):
    """The true mean and standard deviation of every coordinate."""
    modes = CASES[name].modes
    if modes is not None:
        spread = {"mixture2": 0.05, "mixture4": 0.05, "gmm25": 0.3}.get(name, 0.0)
        return modes().mean(axis=0), np.sqrt(modes().var(axis=0) + spread)
    if name == "funnel":
        return np.zeros(10), np.append(3.0, np.full(9, np.exp(9 / 4)))
    sd = np.sqrt(1.0 / np.geomspace(1e-4, 400.0, 20))
    return 2.0 * sd * np.cos(np.arange(20)), sd


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_called_usable_is_right(name, settings):
    case = CASES[name]
    posterior = follmer.fit(case.build(), key=jax.random.key(0), progress=False, **settings)
    draws, log_weights = posterior.weighted_sample(NUM_DRAWS, key=jax.random.key(1))
    found = diagnose(log_weights)
    verdict = judge(found, posterior.audit).verdict
    if not settings:
        # The default reaches all of these.
        assert verdict.is_usable
    if not verdict.is_usable:
        return
    assert abs(found.log_evidence - case.log_evidence) < 0.1
    x, (mean, sd) = np.asarray(draws, float).reshape(NUM_DRAWS, -1), means(name)
    weighted = np.exp(pareto_smooth(log_weights)[0]) @ x
    assert (np.abs(weighted - mean) < 0.15 * sd).all()
    if verdict is Verdict.TRUSTWORTHY:
        assert (np.abs(x.mean(axis=0) - mean) < 0.15 * sd).all()
