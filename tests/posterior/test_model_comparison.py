"""Models side by side: against closed forms, in words, and in a figure."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

import follmer
from follmer import InputError, Posterior, Target, plots
from follmer.drifts import GaussianMixture
from follmer.posterior.comparison import grade
from follmer.posterior.samplers import MixtureFlow, StoredDraws

X = np.linspace(-1.0, 1.0, 12)
Y = 0.5 + 0.9 * X + 0.3 * np.random.default_rng(0).normal(size=12)
NOISE = 0.4


def design(slope):
    return np.stack([np.ones_like(X), X], 1)[:, : 2 if slope else 1]


def posterior(slope, rows=12, width=1.3):
    """A line or a constant with known noise; draws somewhat wider than the posterior."""
    a, y = design(slope)[:rows], Y[:rows]
    target = Target(
        log_prior=lambda w: norm.logpdf(w).sum(),
        log_likelihood=lambda w, batch: norm.logpdf(batch["y"], batch["a"] @ w, NOISE),
        data={"a": a, "y": y},
        like=jnp.zeros(a.shape[1]),
    )
    covariance = np.linalg.inv(np.eye(a.shape[1]) + a.T @ a / NOISE**2)
    mean = covariance @ a.T @ y / NOISE**2
    factor = np.linalg.cholesky(width**2 * covariance)
    mixture = GaussianMixture(np.ones(1), mean[None], factor[None], target.dtype)
    return Posterior(target, MixtureFlow(target, mixture), progress=False)


def log_evidence(slope):
    a = design(slope)
    return stats.multivariate_normal(np.zeros(12), NOISE**2 * np.eye(12) + a @ a.T).logpdf(Y)


@pytest.fixture(scope="module")
def compared():
    import jax

    models = [posterior(False), posterior(True)]
    return follmer.compare(models, names=["constant", "line"], key=jax.random.key(0))


def test_evidence_and_probabilities_are_the_exact_ones(compared):
    exact = np.array([log_evidence(False), log_evidence(True)])
    assert np.all(np.abs(compared.log_evidence - exact) < 4 * compared.log_evidence_se)
    nats, error = compared.log_bayes_factor("line", "constant")
    assert abs(nats - (exact[1] - exact[0])) < 4 * error
    np.testing.assert_allclose(compared.probabilities.sum(), 1.0)
    odds = np.log(compared.probabilities[1] / compared.probabilities[0])
    np.testing.assert_allclose(odds, nats, rtol=1e-6)


def test_it_is_said_in_words(compared):
    text = str(compared)
    assert "ery strong evidence for line over constant: Bayes factor" in text
    assert "By leave-one-out, line predicts better than constant" in text
    assert compared.by_evidence == ["line", "constant"]
    assert compared.by_leave_one_out == ["line", "constant"]


def test_prior_probabilities_of_the_models_count(key):
    models = [posterior(False), posterior(True)]
    even = follmer.compare(models, key=key, num_samples=200)
    skewed = follmer.compare(models, key=key, num_samples=200, prior=[3.0, 1.0])
    odds = even.probabilities[0] / even.probabilities[1]
    np.testing.assert_allclose(skewed.probabilities[0] / skewed.probabilities[1], 3 * odds)
    assert even.names == ("model 1", "model 2")


@pytest.mark.parametrize(
    ("nats", "error", "words"),
    [
        (0.5, 0.1, "evidence not worth more than a bare mention"),
        (2.0, 0.1, "positive evidence"),
        (4.0, 0.1, "strong evidence"),
        (6.0, 0.1, "very strong evidence"),
        (0.5, 0.4, "no clear evidence"),
        (3.0, 0.1, "positive evidence, or strong evidence,"),
    ],
)
def test_the_scale_is_that_of_kass_and_raftery(nats, error, words):
    assert grade(nats, error) == words


def test_chains_have_no_evidence_and_are_compared_by_leave_one_out(key):
    line, constant = posterior(True), posterior(False)
    draws = np.asarray(line.flat_sample(400, key=key)[0]).reshape(2, 200, 2)
    chains = Posterior(line.target, StoredDraws(draws, "nuts", True), progress=False)
    compared = follmer.compare([chains, constant], names=["chains", "constant"], key=key)
    assert np.isnan(compared.log_evidence[0])
    assert np.isnan(compared.probabilities).all()
    assert compared.by_leave_one_out == ["chains", "constant"]
    assert "Bayes factor" not in str(compared)


def test_evidence_that_cannot_be_relied_on_is_noted(key):
    narrow = posterior(True, width=0.05)
    text = str(follmer.compare([narrow, posterior(False)], names=["narrow", "other"], key=key))
    assert "note: narrow: do not use" in text


def test_models_without_data_are_compared_by_evidence_alone(key):
    flat = Target(lambda w: norm.logpdf(w).sum(), jnp.zeros(1))
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), flat.dtype)
    bare = Posterior(flat, MixtureFlow(flat, mixture), progress=False)
    compared = follmer.compare([bare, bare], names=["one", "other"], key=key)
    assert compared.leave_one_out == (None, None)
    assert "leave-one-out" not in str(compared)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posteriors": [posterior(True)]}, "at least two posteriors"),
        ({"names": ["a"]}, "as many different ones as the 2 posteriors"),
        ({"names": ["a", "a"]}, "as many different ones"),
        ({"prior": [1.0, -1.0]}, "prior must be 2 numbers above 0"),
        ({"posteriors": [posterior(True), posterior(True, rows=6)]}, "other numbers of observ"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, message, key):
    given = {"posteriors": [posterior(True), posterior(False)], "num_samples": 50, **options}
    with pytest.raises(InputError, match=message):
        follmer.compare(given.pop("posteriors"), key=key, **given)


def test_other_observations_are_refused(key):
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        numpyro.sample("y", dist.Normal(numpyro.sample("w", dist.Normal(0, 1)), 1.0), obs=y)

    def made(y):
        target = follmer.from_numpyro(model, y)
        mixture = GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), target.dtype)
        return Posterior(target, MixtureFlow(target, mixture), progress=False)

    with pytest.raises(InputError, match="model 2 and model 1 were given other observations"):
        follmer.compare([made(Y), made(np.exp(Y))], key=key)


def test_an_unknown_model_is_named(compared):
    with pytest.raises(InputError, match="there is no model 'lines'"):
        compared.log_bayes_factor("lines", "constant")


def test_the_figure_shows_both_measures(compared):
    figure, axes = plots.figure(1, 2)
    plots.comparison(axes[0], compared)
    for panel in axes[0]:
        assert [label.get_text() for label in panel.get_yticklabels()] == ["constant", "line"]
        # The reference line, and the dots.
        dots = panel.get_lines()[1].get_xdata()
        assert dots[0] == 0.0
        assert dots[1] < 0.0
    assert figure is not None
