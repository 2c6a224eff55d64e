"""The guide for NumPyro's SVI."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import follmer
from follmer import InputError

Y = jnp.array([0.8, 1.4, 0.9, 1.6, 1.1])

SMALL = {"drift_options": {"width": 4, "depth": 1}}


def conjugate(y, size=None):
    """Two means with known noise; the posterior of `shared` and `own` is Gaussian."""
    shared = numpyro.sample("shared", dist.Normal(0.0, 1.0))
    own = numpyro.sample("own", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    numpyro.deterministic("total", shared + own.sum())
    with numpyro.plate("rows", len(y), subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(shared + own[0], 0.5), obs=y[rows])


def bounded(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


def exact():
    """Mean and covariance of (own[0], own[1], shared), and ln Z."""
    design = np.tile([1.0, 0.0, 1.0], (len(Y), 1))
    covariance = np.linalg.inv(np.eye(3) + design.T @ design / 0.25)
    marginal = np.eye(len(Y)) * 0.25 + design @ design.T
    sign, log_det = np.linalg.slogdet(2 * np.pi * marginal)
    log_evidence = -0.5 * (sign * log_det + Y @ np.linalg.solve(marginal, Y))
    return covariance @ design.T @ Y / 0.25, covariance, log_evidence


@pytest.fixture(scope="module")
def trained():
    guide = follmer.numpyro.AutoFollmer(conjugate, num_steps=8)
    svi = SVI(conjugate, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=16))
    found = svi.run(jax.random.key(0), 600, Y, progress_bar=False)
    return guide, found


def test_it_stands_where_autonormal_stands(trained):
    """The same lines; the posterior is correlated, so the mean-field guide must do worse."""
    guide, found = trained
    normal = AutoNormal(conjugate)
    svi = SVI(conjugate, normal, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=16))
    theirs = svi.run(jax.random.key(0), 600, Y, progress_bar=False)
    losses, others = (np.asarray(one.losses[-100:], float) for one in (found, theirs))
    error = np.hypot(losses.std(), others.std()) / np.sqrt(100)
    assert losses.mean() < others.mean() - 4 * error
    log_evidence = exact()[2]
    # A bound: never above ln Z but for noise.
    assert -losses.mean() < log_evidence + 4 * losses.std() / np.sqrt(100)
    shapes = [
        {name: value.shape for name, value in one.median(params).items()}
        for one, params in ((guide, found.params), (normal, theirs.params))
    ]
    assert shapes[0] == shapes[1]


def test_its_weighted_draws_are_the_posterior(trained, key):
    guide, found = trained
    posterior = guide.posterior(found.params, Y)
    judged = posterior.diagnostics(key=key, num_samples=4096)
    mean, covariance, log_evidence = exact()
    assert abs(judged.log_evidence - log_evidence) < 4 * judged.log_evidence_se
    assert judged.khat < 0.7
    found_mean = posterior.expectation(lambda one: one["shared"], key=key)
    error = np.sqrt(covariance[2, 2] / (judged.ess_fraction * 4096))
    assert abs(found_mean - mean[2]) < 4 * error


def test_samples_medians_and_quantiles_belong_together(trained, key):
    guide, found = trained
    draws = guide.sample_posterior(key, found.params, sample_shape=(2, 500))
    assert {name: value.shape for name, value in draws.items()} == {
        "shared": (2, 500),
        "own": (2, 500, 2),
        "total": (2, 500),
    }
    middle = guide.median(found.params, rng_key=key)
    levels = guide.quantiles(found.params, [0.25, 0.5, 0.75], rng_key=key)
    assert levels["own"].shape == (3, 2)
    np.testing.assert_allclose(levels["own"][1], middle["own"], rtol=1e-5)
    spread = (levels["shared"][2] - levels["shared"][0]) / 1.349
    # The standard error of a median, for a normal, of 1000 draws and of 4096.
    error = 1.2533 * spread * np.sqrt(1 / 1000 + 1 / 4096)
    assert abs(np.median(draws["shared"]) - middle["shared"]) < 4 * error
    assert guide.quantiles(found.params, 0.5)["own"].shape == (2,)
    new = Predictive(conjugate, guide=guide, params=found.params, num_samples=7)(key, Y)
    assert new["total"].shape == (7,)


def test_the_loss_is_minus_a_log_weight(key):
    """On average over paths, model over guide is what `posterior` weighs their ends by."""
    guide = follmer.numpyro.AutoFollmer(bounded, num_steps=2, init_scale=0.5, **SMALL)
    svi = SVI(bounded, guide, numpyro.optim.Adam(0.01), Trace_ELBO(num_particles=1000))
    state = svi.init(key, Y)
    params = svi.get_params(state)
    loss = jax.jit(svi.evaluate)(state, Y)
    posterior = guide.posterior(params, Y)
    logs = np.asarray(posterior.log_weights(1000, key=key), float)
    error = logs.std() * np.sqrt(2 / 1000)
    assert abs(-loss - logs.mean()) < 4 * error
    draws = guide.sample_posterior(key, params, sample_shape=(100,))
    assert np.all(draws["scale"] > 0)
    np.testing.assert_allclose(draws["shares"].sum(-1), 1.0, rtol=1e-5)


def test_subsampled_models_are_trained_on_mini_batches(key):
    guide = follmer.numpyro.AutoFollmer(conjugate, num_steps=2, **SMALL)
    svi = SVI(conjugate, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    found = svi.run(key, 5, Y, size=2, progress_bar=False)
    assert np.isfinite(np.asarray(found.losses)).all()
    assert guide.posterior(found.params, Y, size=2).target.num_data == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_step": 3}, r"(?s)'num_step' is not an option.*num_steps"),
        ({"drift": "score_guided"}, "(?s)score_guided cannot be part of a guide.*from_numpyro"),
        ({"init_scale": 0.0}, "init_scale must be a finite number above 0"),
    ],
)
def test_what_a_guide_cannot_have_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        follmer.numpyro.AutoFollmer(conjugate, **options)


def test_the_density_at_a_given_point_is_not_known(trained):
    guide, found = trained
    with pytest.raises(InputError, match=r"(?s)at a given point is not known.*log_weights"):
        guide.get_posterior(found.params).log_prob(jnp.zeros(3))
