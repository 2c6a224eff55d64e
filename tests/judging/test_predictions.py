"""Predictions judged: leaving rows out, agreement of chains, and what is not called good."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import follmer
from follmer.judging import Verdict, audit_predictions, judge, pointwise_log_likelihood, psis_loo
from follmer.judging.pointwise import pointwise_cdf
from follmer.judging.predictions import rows_judged
from follmer.judging.predictive_audit import (
    PredictiveAudit,
    halves_rhat,
    judge_predictions,
    may_change,
)
from follmer.mcmc.ensembles import Schedule, run_ensemble

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = X @ [1.0, -0.5] + 0.5 * rng.normal(size=60)

GOOD = PredictiveAudit(
    num_chains=8,
    num_draws=800,
    num_rows=100,
    at_stake=0.5,
    rhat=1.02,
    rhat_log_likelihood=1.1,
    rhat_halves=1.05,
    rhat_halves_se=0.01,
    own_width=0.5,
    drift=0.01,
    drift_se=0.01,
    loo=-1.0,
    loo_se=0.1,
    unsound=0.05,
    without_x=-1.4,
    sharpness=1.0,
)


@pytest.fixture(scope="module")
def regression():
    return follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((2, 1)),
        data=(X, Y),
        likelihood=follmer.likelihoods.Normal(0.5),
    )


def posterior_of(x, y):
    covariance = np.linalg.inv(np.eye(2) + x.T @ x / 0.25)
    return covariance @ x.T @ y / 0.25, covariance


def exact_draws(count):
    mean, covariance = posterior_of(X, Y)
    return np.random.default_rng(1).multivariate_normal(mean, covariance, count)


def test_log_likelihoods_are_those_of_the_rows(regression):
    draws = exact_draws(5)
    expected = stats.norm.logpdf(Y, draws @ X.T, 0.5)
    found = pointwise_log_likelihood(regression, draws, progress=False)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    some = pointwise_log_likelihood(regression, draws, np.array([3, 7]), progress=False)
    np.testing.assert_allclose(some, expected[:, [3, 7]], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("count", [5, 16, 37])
def test_levels_are_those_of_continuous_rows_alone(regression, count):
    draws, rows = exact_draws(count), np.arange(60)
    expected = stats.norm.cdf(Y, draws @ X.T, 0.5)
    np.testing.assert_allclose(pointwise_cdf(regression, draws, rows), expected, atol=1e-4)
    for likelihood in ("bernoulli", "poisson"):
        target = follmer.from_network(
            lambda w, x: x @ w, params=jnp.zeros((2, 1)), data=(X, Y > 0), likelihood=likelihood
        )
        assert pointwise_cdf(target, draws, rows) is None


def test_loo_is_that_of_the_posterior_without_the_row(regression):
    found = psis_loo(pointwise_log_likelihood(regression, exact_draws(4000), progress=False))
    exact = []
    for i in range(len(Y)):
        mean, covariance = posterior_of(np.delete(X, i, 0), np.delete(Y, i))
        sd = np.sqrt(0.25 + X[i] @ covariance @ X[i])
        exact.append(stats.norm.logpdf(Y[i], X[i] @ mean, sd))
    # Importance sampling by 4000 draws with light tails: a few hundredths at the worst row.
    np.testing.assert_allclose(found.elpd, exact, atol=0.05)
    assert found.mean == pytest.approx(np.mean(exact), abs=0.005)
    assert np.all(found.khat < 0.7)


def test_draws_with_shares_are_left_out_as_so_many_copies_would_be(regression):
    logs = pointwise_log_likelihood(regression, exact_draws(400), progress=False)
    copies = np.repeat([1, 3], 200)
    shared = psis_loo(logs, log_weights=np.log(copies / copies.sum())[:, None] - logs)
    copied = psis_loo(np.repeat(logs, copies, axis=0))
    # Tails of another number of draws are smoothed a little otherwise.
    np.testing.assert_allclose(shared.elpd, copied.elpd, atol=0.01)


@pytest.mark.parametrize("many", [True, False])
def test_chains_keep_their_shares_when_one_of_many_rows_is_left_out(many):
    """Of chains that stay where they are: a mixture of what each predicts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000 if many else 10, 2))
    y = x @ [1.0, 0.5] + rng.normal(scale=0.5, size=len(x))
    target = follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((2, 1)),
        data=(x, y),
        likelihood=follmer.likelihoods.Normal(0.5),
    )
    ends = np.array([[1.0, 0.2], [1.0, 0.8], [0.7, 0.5], [1.3, 0.5]])
    chains = np.repeat(ends[:, None], 50, axis=1)
    found = audit_predictions(target, chains, jax.random.key(0)).loo
    rows = rows_judged(target, jax.random.key(0))
    logs = stats.norm.logpdf(y[rows], ends @ x[rows].T, 0.5)
    fixed = np.mean(np.logaddexp.reduce(logs, axis=0) - np.log(4))
    if many:
        assert found == pytest.approx(fixed, abs=1e-3)
    else:
        # Chains might change places: their shares go by how likely the others are without the row.
        assert found < fixed - 0.01


def test_a_point_has_no_tail_to_fit():
    found = psis_loo(np.tile([[-1.0, -2.0]], (50, 1)))
    np.testing.assert_allclose(found.elpd, [-1.0, -2.0])


def test_what_never_varies_agrees():
    assert halves_rhat(np.zeros((4, 10, 1))) == (1.0, 0.0)


def test_halves_of_chains_that_drift_are_apart():
    values = np.random.default_rng(0).normal(size=(8, 500, 20))
    settled, _ = halves_rhat(values)
    assert np.max(settled) < 1.01
    # A trend over two standard deviations: halves are 1 apart, ½ in variance beside 1 + 1/12.
    drifting = values + np.linspace(0, 2, 500)[:, None]
    expected = np.sqrt(1 + 0.5 / (1 + 1 / 12))
    np.testing.assert_allclose(halves_rhat(drifting)[0], expected, rtol=0.05)


def test_the_error_of_halves_is_what_other_chains_make_of_it():
    # Slow chains, of five effective draws a half: many ensembles of six, each with its own error.
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        values = np.repeat(rng.normal(size=(6, 10, 4)), 20, axis=1)
        rhat, error = halves_rhat(values)
        found.append((np.median(rhat), error))
    medians, errors = np.array(found).T
    # The jackknife of six chains, averaged over a hundred ensembles.
    assert 0.7 < errors.mean() / medians.std(ddof=1) < 1.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_chains": 1}, "one mode"),
        ({"num_draws": 16}, "too short"),
        ({"own_width": 0.001}, "hardly moved"),
        ({"rhat": 1.3}, "disagree"),
        ({"rhat_halves": 1.3}, "not settled"),
        ({"rhat_halves_se": 0.1}, "not settled"),
        ({"drift": -0.3}, "still change"),
        ({"unsound": 0.6, "loo": -1.3}, "k̂ > .7"),
        ({"loo": float("nan")}, "not finite"),
        ({"loo": -1.7}, "looks at no x: a dead"),
    ],
)
def test_what_is_not_good_for_predictions(change, words):
    assert judge_predictions(GOOD)[0]
    good, advice = judge_predictions(GOOD._replace(**change))
    assert not good
    assert words in advice


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"own_width": 0.001}, True),
        ({"rhat": 1.3}, True),
        ({"rhat_halves": 1.3}, True),
        ({"rhat_halves": 1.3, "at_stake": 0.05}, False),
        # Halves of 1.3 effective draws miss .37 of a chain's width: .074 of the variance of y.
        ({"rhat_halves": 1.3, "at_stake": 0.2}, False),
        ({"own_width": 0.001, "at_stake": 0.2}, True),
        # Too little to be refused, with its error.
        ({"drift": 0.06}, True),
        # What more steps do not mend.
        ({"unsound": 0.6, "loo": -1.7}, False),
        ({"rhat": float("nan")}, False),
    ],
)
def test_which_chains_longer_ones_might_improve_on(change, expected):
    assert may_change(GOOD._replace(**change)) is expected


def test_chains_that_have_not_settled_matter_little_where_rows_are_many():
    good, advice = judge_predictions(GOOD._replace(rhat_halves=1.3, at_stake=0.05))
    assert good
    assert "have not settled" in advice
    assert judge_predictions(GOOD._replace(rhat_halves=1.3, at_stake=0.2))[0]
    assert not judge_predictions(GOOD._replace(rhat_halves=1.3, at_stake=0.3))[0]
    assert not judge_predictions(GOOD._replace(rhat_halves=2.0, at_stake=0.2))[0]
    # Even points would do, if there are several and they agree.
    good, advice = judge_predictions(GOOD._replace(own_width=0.001, at_stake=0.05))
    assert good
    assert "hardly moved" in advice
    assert not judge_predictions(GOOD._replace(own_width=0.001, at_stake=0.05, rhat=1.2))[0]
    assert not judge_predictions(GOOD._replace(num_chains=1, at_stake=0.05))[0]


def test_what_leaving_out_cannot_tell_is_no_reason_to_refuse():
    # Rows that decide their own prediction, yet are likelier than without x when left out.
    good, advice = judge_predictions(GOOD._replace(unsound=0.9))
    assert good
    assert "held-out rows" in advice


def test_the_verdict_stands_between_weights_and_no_proof():
    order = list(Verdict)
    good = order.index(Verdict.GOOD_FOR_PREDICTIONS)
    assert order.index(Verdict.USE_WEIGHTS) < good < order.index(Verdict.NO_PROOF)
    assert judge(None, GOOD).verdict is Verdict.GOOD_FOR_PREDICTIONS
    assert Verdict.GOOD_FOR_PREDICTIONS.is_usable


@pytest.fixture(scope="module")
def network():
    x = np.linspace(-2, 2, 80)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=80)
    net = eqx.nn.MLP(1, 1, width_size=8, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    return follmer.from_network(net, data=(x, y), likelihood=follmer.likelihoods.Normal(0.2))


def judged(network, draws):
    return judge(None, audit_predictions(network, draws, jax.random.key(1))).verdict


def test_under_run_chains_and_single_modes_are_not_called_good(network, key):
    schedule = Schedule(8, 2000, 4000, 20)
    draws = run_ensemble(network, schedule, key, progress=False).draws
    assert judged(network, draws) is Verdict.GOOD_FOR_PREDICTIONS
    assert judged(network, draws[:1]) is Verdict.DO_NOT_USE
    # Chains of a few steps have not settled.
    short = run_ensemble(network, Schedule(8, 2000, 80, 1), key, progress=False).draws
    assert judged(network, short) is Verdict.DO_NOT_USE
