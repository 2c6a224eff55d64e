"""Every objective × drift × path recovers the shared scenarios."""

import functools
import itertools

import jax
import numpy as np
import pytest

import follmer
from follmer.drifts import DRIFTS
from follmer.judging import diagnose
from follmer.objectives import OBJECTIVES
from follmer.paths import GRIDS, STEPS
from scenarios import SCENARIOS, truth

DEFAULTS = ("stl", "time_mlp", "geometric", "h_transform")
NETWORKS = [name for name in DRIFTS if name != "zero"]
# BatchNorm's statistics are over paths at one time, which a memory mixes: that pair is refused.
PAIRS = [
    pair
    for pair in itertools.product(OBJECTIVES, NETWORKS)
    if pair != ("adjoint_matching", "batch_norm_mlp")
]
CHOICES = [(*pair, *path) for pair in PAIRS for path in itertools.product(GRIDS, STEPS)]
# Each choice on its own, the others as by default.
ONE_AT_A_TIME = [
    choice for choice in CHOICES if sum(a != b for a, b in zip(choice, DEFAULTS, strict=True)) <= 1
]
# The paper's path and the default one.
PATHS = [("uniform", "euler_maruyama"), ("geometric", "h_transform")]


@functools.cache
def built(scenario):
    target = SCENARIOS[scenario]()
    return target, truth(target)


def recover(scenario, objective, drift, grid, step_rule, num_iterations=400):
    target, expected = built(scenario)
    posterior = follmer.fit(
        target,
        key=jax.random.key(0),
        objective=objective,
        drift=drift,
        grid=grid,
        step_rule=step_rule,
        drift_options={"width": 32},
        num_steps=16,
        num_iterations=num_iterations,
        # Twelve layers deep, it wants smaller steps.
        learning_rate=1e-3 if drift == "resnet" else 3e-3,
        chunk_size=200,
        check=False,
        precondition="identity",
        audit=False,
    )
    draws, log_weights = posterior.weighted_sample(4096, key=jax.random.key(1))
    found = diagnose(log_weights)
    # The process is near the target, or has come much nearer; the weights make the rest exact.
    assert expected.log_evidence - found.elbo < max(0.3, 0.6 * expected.untrained_gap)
    assert abs(found.log_evidence - expected.log_evidence) < 4.5 * found.log_evidence_se
    weights = np.asarray(jax.nn.softmax(log_weights), float)
    values = np.stack([np.asarray(leaf, float) for leaf in jax.tree.leaves(draws)], 1)
    values = values.reshape(4096, 2)
    deviations = values - expected.mean
    # Delta-method standard errors of self-normalised estimates.
    mean_se = np.sqrt((weights**2) @ deviations**2)
    assert (np.abs(weights @ deviations) < 4.5 * mean_se).all()
    tails = (deviations > expected.sd) - expected.tail
    assert (np.abs(weights @ tails) < 4.5 * np.sqrt((weights**2) @ tails**2)).all()
    assert (mean_se < 0.1 * expected.sd).all()


@pytest.mark.parametrize("scenario", ["funnel_lite", "logistic_regression"])
def test_the_defaults_recover_a_scenario(scenario):
    recover(scenario, *DEFAULTS)


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "drift", "grid", "step_rule"), ONE_AT_A_TIME)
def test_every_choice_recovers_a_scenario(objective, drift, grid, step_rule):
    recover("two_near_modes", objective, drift, grid, step_rule)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("objective", "drift"), PAIRS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_combination_recovers_every_scenario(scenario, objective, drift, path):
    recover(scenario, objective, drift, *path, num_iterations=1000)
