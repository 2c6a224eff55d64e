"""Predictions against closed forms, and against sums over the same draws by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import follmer
from follmer import NSFS, InputError, Posterior, Target, from_network, likelihoods
from follmer.judging import audit_predictions
from follmer.posterior.samplers import Flow
from follmer.targets.affine import from_covariance

rng = np.random.default_rng(0)
NOISE = 0.4
X = np.c_[rng.normal(size=(20, 1)), np.ones(20)]
Y = X @ [1.0, -0.5] + NOISE * rng.normal(size=20)
NEW = np.c_[np.linspace(-3.0, 3.0, 11), np.ones(11)]
NUM_DRAWS = 4096

COVARIANCE = np.linalg.inv(np.eye(2) + X.T @ X / NOISE**2)
MEAN = COVARIANCE @ X.T @ Y / NOISE**2


def linear(params, x):
    return x @ params


def regression(likelihood=None, y=Y, shape=(2,)):
    likelihood = likelihood or likelihoods.Normal(NOISE)
    return from_network(linear, params=np.zeros(shape), data=(X, y), likelihood=likelihood)


def posterior_of(target, mean=MEAN, covariance=COVARIANCE):
    """A flow whose draws are those of N(mean, covariance): untrained, in whitened coordinates."""
    whitened = target.whitened(from_covariance(mean, covariance, target.dtype))
    process = NSFS(whitened, num_steps=2, drift_options={"width": 4, "depth": 1}).process
    return Posterior(target, Flow(process, process.parameters(jax.random.key(0))))


@pytest.fixture(scope="module")
def exact():
    return posterior_of(regression())


@pytest.fixture(scope="module")
def truth():
    sd_of_mean = np.sqrt(np.einsum("ri,ij,rj->r", NEW, COVARIANCE, NEW))
    return stats.norm(NEW @ MEAN, np.sqrt(sd_of_mean**2 + NOISE**2)), sd_of_mean


def test_predictions_are_sharpened_as_rows_left_out_would_have_it(exact, key):
    """F becomes B(F): quantiles are those of other levels, densities times b(F)."""
    found = audit_predictions(
        exact.target, np.random.default_rng(1).multivariate_normal(MEAN, COVARIANCE, (4, 100)), key
    )
    assert found.sharpness == pytest.approx(1.0, abs=0.5)
    law, y = stats.beta(1.5, 1.5), NEW @ MEAN + 0.3
    sharper = exact.with_audit(found._replace(sharpness=1.5))
    ask = {"key": key, "num_samples": 500, "y": y}
    plain = exact.predict(NEW, **ask, quantiles=law.ppf([0.05, 0.95]))
    calibrated = sharper.predict(NEW, **ask, quantiles=(0.05, 0.95))
    np.testing.assert_allclose(calibrated.quantiles, plain.quantiles, atol=1e-4)
    np.testing.assert_array_equal(calibrated.mean, plain.mean)
    untouched = sharper.predict(NEW, **ask, calibrated=False)
    np.testing.assert_array_equal(untouched.log_predictive_density, plain.log_predictive_density)
    gain = calibrated.log_predictive_density - plain.log_predictive_density
    # y is near the middle of each row's distribution, where B(1.5, 1.5) has up to 4/π of a density.
    assert np.all((gain > 0) & (gain <= np.log(4 / np.pi) + 1e-4))


def test_a_linear_regression_is_predicted_as_in_closed_form(exact, truth, key):
    law, sd_of_mean = truth
    y = NEW @ MEAN + 0.3
    found = exact.predict(NEW, key=key, num_samples=NUM_DRAWS, y=y)
    error = 5 * sd_of_mean / np.sqrt(NUM_DRAWS)
    np.testing.assert_array_less(np.abs(found.mean - law.mean()), error)
    # The variance of a sample variance of normals is 2σ⁴/n.
    error = 5 * sd_of_mean**2 * np.sqrt(2 / NUM_DRAWS)
    np.testing.assert_array_less(np.abs(found.sd**2 - law.var()), error)
    for level, quantile in zip((0.05, 0.5, 0.95), found.quantiles, strict=True):
        # A shift and a stretch of the mixture move its quantile by little more than themselves.
        np.testing.assert_allclose(quantile, law.ppf(level), atol=0.03)
    # p(y|θ) ≤ 1 here, so its mean has a standard error below 1/√n.
    error = 5 / np.sqrt(NUM_DRAWS) / law.pdf(y)
    np.testing.assert_array_less(np.abs(found.log_predictive_density - law.logpdf(y)), error)
    assert found.probabilities is None


def test_predictions_average_over_the_draws_of_the_same_key(exact, key):
    draws = np.asarray(exact.sample(100, key=key), float)
    found = exact.predict(NEW, key=key, num_samples=100, y=NEW[:, 0])
    outputs = draws @ NEW.T
    np.testing.assert_allclose(found.mean, outputs.mean(0), atol=1e-5)
    np.testing.assert_allclose(found.sd, np.sqrt(outputs.var(0) + NOISE**2), rtol=1e-5)
    log_prob = stats.norm.logpdf(NEW[:, 0], outputs, NOISE)
    np.testing.assert_allclose(found.gibbs_log_likelihood, log_prob.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        found.log_predictive_density, np.log(np.exp(log_prob).mean(0)), rtol=1e-4, atol=1e-4
    )
    for level, quantile in zip((0.05, 0.5, 0.95), np.asarray(found.quantiles, float), strict=True):
        reached = stats.norm.cdf(quantile, outputs, NOISE).mean(0)
        np.testing.assert_allclose(reached, level, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 150, 700])
def test_blocks_of_rows_change_nothing(exact, batch_size, key):
    arguments = {"key": key, "num_samples": 100, "y": NEW[:, 0], "weighted": True}
    whole = exact.predict(NEW, **arguments)
    blocked = exact.predict(NEW, batch_size=batch_size, **arguments)
    for name, values in blocked._asdict().items():
        if values is not None:
            np.testing.assert_allclose(values, getattr(whole, name), rtol=1e-5, atol=1e-5)


def test_blocks_are_compiled_once(key):
    calls = []

    def counted(params, x):
        calls.append(x.shape)
        return x @ params

    target = from_network(
        counted, params=np.zeros(2), data=(X, Y), likelihood=likelihoods.Normal(NOISE)
    )
    posterior = posterior_of(target)
    posterior.predict(NEW, key=key, num_samples=10, batch_size=20)
    blocks = [shape for shape in calls if shape == (2, 2)]
    assert 0 < len(blocks) < 3  # of six


def test_weights_mend_a_flow_that_is_off(truth, key):
    law, sd_of_mean = truth
    off = posterior_of(regression(), MEAN + 0.5 * np.sqrt(np.diag(COVARIANCE)), 1.5 * COVARIANCE)
    ess = NUM_DRAWS * off.diagnostics(key=key, num_samples=NUM_DRAWS).ess_fraction
    error = 5 * sd_of_mean / np.sqrt(ess)
    plain = off.predict(NEW, key=key, num_samples=NUM_DRAWS)
    weighted = off.predict(NEW, key=key, num_samples=NUM_DRAWS, weighted=True)
    np.testing.assert_array_less(np.abs(weighted.mean - law.mean()), error)
    assert np.all(np.abs(plain.mean - law.mean())[-3:] > error[-3:])
    np.testing.assert_array_less(np.abs(weighted.sd - law.std()), np.abs(plain.sd - law.std()))


def test_the_predictive_density_is_above_the_mean_log_likelihood(exact, key):
    found = exact.predict(NEW, key=key, num_samples=100, y=np.zeros(11))
    assert jnp.all(found.log_predictive_density > found.gibbs_log_likelihood)


def test_bernoulli_probabilities_sum_to_one_and_give_the_moments(key):
    posterior = posterior_of(regression("bernoulli", Y > 0), np.zeros(2), np.eye(2))
    found = posterior.predict(NEW, key=key, num_samples=50, y=np.ones(11))
    np.testing.assert_allclose(found.probabilities.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.probabilities[:, 1], found.mean, rtol=1e-5)
    np.testing.assert_allclose(found.sd, np.sqrt(found.mean * (1 - found.mean)), rtol=1e-4)
    np.testing.assert_allclose(found.log_predictive_density, np.log(found.mean), rtol=1e-4)
    assert found.quantiles is None


def test_class_probabilities_are_the_mean_of_the_softmax(key):
    target = regression("categorical", np.digitize(Y, [-1, 0]), (2, 3))
    posterior = posterior_of(target, np.zeros(6), np.eye(6))
    draws = posterior.sample(50, key=key)
    found = posterior.predict(NEW, key=key, num_samples=50)
    expected = jax.nn.softmax(jnp.einsum("ri,sic->src", NEW, draws)).mean(0)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(found.probabilities.sum(-1), 1.0, rtol=1e-5)


def test_class_probabilities_are_sharpened_by_a_power(key):
    target = regression("categorical", np.digitize(Y, [-1, 0]), (2, 3))
    draws = np.random.default_rng(1).normal(size=(4, 100, 6))
    audit = audit_predictions(target, draws, key)._replace(sharpness=1.5)
    posterior = posterior_of(target, np.zeros(6), np.eye(6)).with_audit(audit)
    ask = {"key": key, "num_samples": 100, "y": np.arange(11) % 3}
    plain, sharper = (posterior.predict(NEW, **ask, calibrated=one) for one in (False, True))
    raised = np.asarray(plain.probabilities) ** 1.5
    raised /= raised.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(sharper.probabilities, raised, atol=1e-6)
    own = np.log(raised[np.arange(11), ask["y"]])
    np.testing.assert_allclose(sharper.log_predictive_density, own, atol=1e-5)
    np.testing.assert_array_equal(sharper.gibbs_log_likelihood, plain.gibbs_log_likelihood)
    without = posterior.predict(NEW, key=key, num_samples=100)
    np.testing.assert_allclose(without.probabilities, raised, atol=1e-6)


def test_quantiles_of_counts_are_those_of_the_mixture(key):
    target = regression("poisson", np.round(np.exp(Y)))
    posterior = posterior_of(target, np.array([0.5, 1.0]), 0.1 * np.eye(2))
    rates = np.exp(np.asarray(posterior.sample(60, key=key), float) @ NEW.T)
    found = posterior.predict(NEW, key=key, num_samples=60, quantiles=[0.1, 0.7])
    counts = np.arange(500)[:, None]
    cdf = np.stack([stats.poisson.cdf(counts, rate).mean(1) for rate in rates.T], 1)
    for level, quantile in zip((0.1, 0.7), found.quantiles, strict=True):
        np.testing.assert_array_equal(quantile, (cdf < level).sum(0))


def test_inferred_noise_is_part_of_the_spread(key):
    target = regression("normal")
    posterior = posterior_of(target, np.zeros(3), 0.01 * np.eye(3))
    draws = posterior.sample(50, key=key)
    found = posterior.predict(NEW, key=key, num_samples=50)
    outputs = np.asarray(draws["net"]) @ NEW.T
    variance = outputs.var(0) + np.mean(np.asarray(draws["noise_sd"]) ** 2)
    np.testing.assert_allclose(found.sd, np.sqrt(variance), rtol=1e-4)


def test_own_targets_predict_through_their_own_predictive(exact, key):
    own = Target(
        log_prior=lambda theta: -0.5 * jnp.sum(theta["w"] ** 2),
        log_likelihood=lambda theta, batch: -0.5 * (batch[1] - batch[0] @ theta["w"]) ** 2,
        data=(X, Y),
        like={"w": jnp.zeros(2)},
        outputs=lambda theta: theta["w"],
        predictive=follmer.Predictive(
            lambda theta, x: x @ theta["w"], lambda theta: likelihoods.Normal(NOISE)
        ),
    )
    found = posterior_of(own).predict(NEW, key=key, num_samples=100, y=NEW[:, 0])
    expected = exact.predict(NEW, key=key, num_samples=100, y=NEW[:, 0])
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(found.quantiles, expected.quantiles, atol=1e-5)


def test_no_quantiles_can_be_asked_for(exact, key):
    assert exact.predict(NEW, key=key, num_samples=10, quantiles=()).quantiles is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": NEW[:, :1]}, r"\(11, 1\).*rows of shape \(2,\)"),
        ({"x": NEW[0]}, r"\(2,\).*rows of shape \(2,\)"),
        ({"x": NEW[:0]}, "no rows"),
        ({"x": np.full((3, 2), np.nan)}, "x holds nan in row 0, column 0"),
        ({"y": np.zeros(10)}, r"y has shape \(10,\).*\(11,\)"),
        ({"y": np.full(11, np.inf)}, "y holds inf in row 0"),
        ({"quantiles": (0.0, 0.5)}, "quantiles"),
        ({"quantiles": 0.5}, "quantiles"),
        ({"quantiles": (0.5, 1.0)}, "quantiles"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_questions_that_cannot_be_answered_are_named(exact, arguments, message, key):
    with pytest.raises(InputError, match=f"(?s){message}"):
        exact.predict(**{"x": NEW, "key": key, "num_samples": 10} | arguments)


def test_a_target_without_rows_says_that_it_cannot_predict(key):
    target = Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(2))
    with pytest.raises(InputError, match="cannot predict"):
        posterior_of(target).predict(NEW, key=key)
