"""Each baseline on targets it can do, where its weights are known to be right."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer.util import log_density

import follmer
from follmer.bench.baselines import (
    BASELINES,
    NUM_DRAWS,
    Baseline,
    flow,
    full_rank,
    laplace,
    mean_field,
    nuts,
)
from follmer.bench.targets import CASES, gaussian

MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.5], [0.5, 1.0]])


@pytest.fixture(scope="module")
def normal():
    """A correlated normal density; ln Z = 0."""
    return gaussian(MEAN, COVARIANCE)


def test_laplace_is_exact_on_a_normal(normal, key):
    found = laplace(normal, key)
    assert found.log_evidence == pytest.approx(0.0, abs=1e-3)
    assert found.ess_fraction == pytest.approx(1.0, abs=1e-3)
    assert found.verdict is None
    assert found.gradient_evaluations < 50
    se = 1 / np.sqrt(NUM_DRAWS)
    np.testing.assert_allclose(found.draws.mean(axis=0), MEAN, atol=4 * se)
    np.testing.assert_allclose(np.cov(found.draws.T), COVARIANCE, atol=4 * np.sqrt(2) * se)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # ArviZ, of weights as uneven as these
def test_laplace_survives_directions_without_curvature(key):
    found = laplace(follmer.Target(lambda x: -jnp.sum(jnp.abs(x)), like=jnp.zeros(2)), key)
    assert np.isfinite(found.draws).all()


def test_laplace_leaves_the_saddle_it_starts_from(key):
    found = laplace(CASES["many_well"].build(), key)
    assert found.log_evidence == pytest.approx(-0.5411 - np.log(32), abs=0.1)


@pytest.mark.parametrize(
    "method", [mean_field, *(pytest.param(f, marks=pytest.mark.slow) for f in (full_rank, flow))]
)
def test_variational_weights_are_right_whatever_the_fit(normal, key, method):
    """The weights average to Z = 1 after hardly any training."""
    found = method(normal, key, num_steps=200)
    assert found.log_weights.shape == (NUM_DRAWS,)
    assert found.khat < 0.7
    assert found.log_evidence == pytest.approx(0.0, abs=5 * found.log_evidence_se)
    assert found.elbo < 0.0
    assert found.gradient_evaluations == 200 * 16
    assert found.seconds > 0


@pytest.mark.slow
def test_full_rank_learns_correlations_that_mean_field_cannot(normal, key):
    joint, separate = (method(normal, key, num_steps=600) for method in (full_rank, mean_field))
    assert joint.ess_fraction > 0.95
    # The best factorised normal is this far away in Kullback–Leibler divergence.
    assert separate.elbo == pytest.approx(0.5 * np.log(1 - 0.5**2), abs=0.05)


@pytest.mark.slow
def test_nuts_finds_the_moments_and_counts_its_gradients(normal, key):
    found = nuts(normal, key, num_warmup=200, num_samples=250)
    assert found.draws.shape == (1000, 2)
    assert found.log_evidence is None
    assert found.log_weights is None
    assert 0.05 < found.ess_fraction < 2
    assert found.gradient_evaluations > 4 * 450
    se = 1 / np.sqrt(1000 * found.ess_fraction)
    np.testing.assert_allclose(found.draws.mean(axis=0), MEAN, atol=4 * se)
    assert found.note.startswith("R-hat 1.0")


def test_draws_come_back_in_their_support(key):
    target = follmer.Target(
        lambda theta: -theta["rate"],
        like={"rate": jnp.ones(())},
        constraints={"rate": constraints.positive},
    )
    found = laplace(target, key)
    assert found.draws["rate"].shape == (NUM_DRAWS,)
    assert (found.draws["rate"] > 0).all()
    assert found.log_evidence == pytest.approx(0.0, abs=4 * found.log_evidence_se)


def test_a_numpyro_model_inside_the_target_keeps_its_sites_to_itself(key):
    def model():
        numpyro.sample("x", dist.Normal(3.0, 1.0))

    target = follmer.Target(lambda x: log_density(model, (), {}, {"x": x})[0], like=jnp.zeros(()))
    found = mean_field(target, key, num_steps=300)
    assert found.log_evidence == pytest.approx(0.0, abs=5 * found.log_evidence_se + 1e-4)


@pytest.mark.parametrize(
    ("baseline", "says"),
    [
        (Baseline(laplace, min_dim=3), "at least 3 dimensions"),
        (Baseline(laplace, max_dim=1), "more than 1 dimensions"),
        (Baseline(laplace, max_dim=2), None),
        (Baseline(laplace), None),
    ],
)
def test_dimensions_for_which_a_method_is_silly_are_named(normal, baseline, says):
    reason = baseline.why_not(normal)
    assert reason is None if says is None else says in reason


def test_nuts_is_skipped_where_gradients_are_dear():
    rows = jnp.ones((200_000, 2))
    target = follmer.Target(
        log_prior=lambda w: -jnp.sum(w**2),
        log_likelihood=lambda w, batch: -((batch @ w) ** 2),
        data=rows,
        like=jnp.zeros(2),
    )
    assert "too dear" in BASELINES["nuts"].why_not(target)
    assert BASELINES["mean_field"].why_not(target) is None


def test_seeds_decide_the_draws(normal):
    first, again = (laplace(normal, jax.random.key(3)) for _ in range(2))
    assert jnp.array_equal(first.draws, again.draws)
