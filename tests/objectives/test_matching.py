"""Objectives that learn from a memory: bridge and adjoint matching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import follmer
from follmer.drifts import GaussianDrift
from follmer.judging import diagnose
from follmer.objectives import AdjointMatching, BridgeMatching, Problem
from follmer.paths import Diffusion, grid_times, uniform

MEAN, SD = np.array([0.5, -0.3]), np.array([0.6, 1.3])


def log_density(x):
    return jnp.sum(norm.logpdf(x, jnp.asarray(MEAN), jnp.asarray(SD)))


@pytest.fixture(scope="module")
def draws():
    return jnp.asarray(MEAN + SD * np.random.default_rng(0).normal(size=(2048, 2)))


@pytest.fixture(scope="module")
def problem():
    diffusion = Diffusion(2, 1.0, grid_times(uniform, 50), jnp.float32)
    return Problem(
        diffusion, log_density, lambda x: log_density(x) - diffusion.log_reference(x), num_paths=64
    )


def refreshed(objective, memory, drift, problem, key):
    """The memory after an iteration at which it is renewed."""
    due = jnp.asarray(objective.refresh_every - 1)
    return objective.refresh(memory, due, lambda: drift, problem, key)


@pytest.mark.parametrize(
    "build", [lambda draws: BridgeMatching(draws), lambda _: AdjointMatching()]
)
def test_the_loss_is_least_at_the_foellmer_drift(problem, draws, key, build):
    objective = build(draws)
    best = GaussianDrift(jnp.asarray(MEAN), jnp.diag(jnp.asarray(SD**2)))
    memory = objective.init(problem, key)
    memory = refreshed(objective, memory, best, problem._replace(num_paths=4096), key)

    def loss(drift):
        # The same points for both drifts, so that their noise cancels.
        return jnp.mean(
            jax.vmap(lambda key: objective.loss(drift, problem, memory, key)[0])(
                jax.random.split(key, 16)
            )
        )

    least = loss(best)
    for shift in (-0.3, 0.3):
        assert least < loss(lambda t, x, shift=shift: best(t, x) + shift)
        assert least < loss(lambda t, x, shift=shift: best(t, x) + shift * x)


@pytest.mark.parametrize("name", [pytest.param("bridge", marks=pytest.mark.slow), "adjoint"])
def test_training_reaches_a_gaussian(draws, name):
    target = follmer.Target(log_density, like=jnp.zeros(2))
    objective = BridgeMatching(draws, num_points=256) if name == "bridge" else AdjointMatching()
    posterior = follmer.fit(
        target,
        key=jax.random.key(0),
        objective=objective,
        num_steps=16,
        num_iterations=300,
        drift_options={"width": 16},
        precondition="identity",
        audit=False,
    )
    found = diagnose(posterior.log_weights(2048, key=jax.random.key(1)))
    # The reference's own bound is −.63.
    assert found.elbo > -0.15
    assert abs(found.log_evidence) < 4.5 * max(found.log_evidence_se, 0.002)


def test_memory_is_refreshed_by_paths_as_far_as_they_are_effective(problem, key):
    far = jnp.full((512, 2), 40.0)
    best = GaussianDrift(jnp.asarray(MEAN), jnp.diag(jnp.asarray(SD**2)))
    objective = BridgeMatching(far, refresh_paths=256, moves=0)
    memory = refreshed(objective, objective.init(problem, key), best, problem, key)
    replaced = np.mean(np.asarray(memory.draws)[:, 0] < 20.0)
    # Half of the effective share of 256 new draws among 512.
    assert 0.1 < replaced <= 0.25


@pytest.mark.parametrize(
    "build", [lambda draws: BridgeMatching(draws, refresh_paths=64), lambda _: AdjointMatching()]
)
def test_memory_is_left_alone_until_it_is_due(problem, draws, key, build):
    objective = build(draws)
    best = GaussianDrift(jnp.asarray(MEAN), jnp.diag(jnp.asarray(SD**2)))
    memory = objective.init(problem, key)
    assert objective.has_memory

    def after(iteration):
        new = objective.refresh(memory, jnp.asarray(iteration), lambda: best, problem, key)
        return any(
            np.any(np.asarray(a) != np.asarray(b))
            for a, b in zip(jax.tree.leaves(memory), jax.tree.leaves(new), strict=True)
        )

    every = objective.refresh_every
    assert [after(i) for i in (0, every - 2, every - 1, every)] == [False, False, True, False]
