"""Ranks are uniform for exact samplers, and wrong ones are caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import follmer
from follmer.judging.sbc import sbc, uniformity

NUM_DATA = 5
NUM_DRAWS = 99


def simulate(key):
    """theta ~ N(0, I), five rows of N(theta, I)."""
    theta_key, data_key = jax.random.split(key)
    theta = jax.random.normal(theta_key, (2,))
    data = theta + jax.random.normal(data_key, (NUM_DATA, 2))
    return {"location": theta}, data


def exact(shift=0.0, scale=1.0):
    """The conjugate posterior, or one that is off by so many of its standard deviations."""
    sd = (1 + NUM_DATA) ** -0.5

    @jax.jit
    def fit(data, key):
        mean = jnp.sum(data, axis=0) * sd**2
        noise = jax.random.normal(key, (NUM_DRAWS, 2))
        return {"location": mean + sd * (shift + scale * noise)}

    return fit


@pytest.fixture(scope="module")
def calibrated():
    return sbc(jax.jit(simulate), exact(), key=jax.random.key(1), num_simulations=400)


def test_an_exact_sampler_passes(calibrated):
    assert calibrated.passed()
    assert set(calibrated.p_values) == {"location[0]", "location[1]"}
    assert "calibrated as far as can be seen" in calibrated.summary()


def test_ranks_of_an_exact_sampler_are_uniform(calibrated):
    for ranks in calibrated.ranks.values():
        assert ranks.shape == (400,)
        assert ranks.min() >= 0
        assert ranks.max() <= NUM_DRAWS
        scaled = (ranks + 0.5) / (NUM_DRAWS + 1)
        assert stats.kstest(scaled, "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scale": 0.7}, "too narrow"),
        ({"scale": 1.5}, "too wide"),
        ({"shift": 0.5}, "too high"),
        ({"shift": -0.5}, "too low"),
    ],
)
def test_a_wrong_sampler_is_caught_and_told(wrong, words):
    found = sbc(jax.jit(simulate), exact(**wrong), key=jax.random.key(2), num_simulations=400)
    assert not found.passed()
    assert words in found.summary()


def test_ranks_are_the_number_of_smaller_draws():
    def draws_around(data, key):
        return jnp.arange(NUM_DRAWS) - 0.5

    found = sbc(
        lambda key: (jnp.array(7.0), None), draws_around, key=jax.random.key(0), num_simulations=10
    )
    assert found.ranks["theta"].tolist() == [8] * 10


def test_ties_are_broken_at_random():
    def on_a_coarse_grid(key):
        return jnp.round(2 * jax.random.normal(key)), None

    def prior_again(data, key):
        return jnp.round(2 * jax.random.normal(key, (NUM_DRAWS,)))

    found = sbc(on_a_coarse_grid, prior_again, key=jax.random.key(3), num_simulations=200)
    assert found.passed()


def test_more_draws_than_wanted_are_thinned(calibrated):
    def plenty(data, key):
        keys = jax.random.split(key, 3)
        return jax.tree.map(
            lambda *parts: jnp.concatenate(parts), *(exact()(data, k) for k in keys)
        )

    found = sbc(jax.jit(simulate), plenty, key=jax.random.key(4), num_simulations=20)
    assert found.num_draws == NUM_DRAWS
    assert max(ranks.max() for ranks in found.ranks.values()) <= NUM_DRAWS


@pytest.mark.parametrize("num_draws", [99, 100, 9])
def test_uniformity_keeps_its_level(num_draws):
    """Under uniform ranks, p-values below .1 come about one time in ten."""
    rng = np.random.default_rng(0)
    count = 1000
    p_values = [uniformity(rng.integers(num_draws + 1, size=200), num_draws) for _ in range(count)]
    assert np.mean(np.array(p_values) < 0.1) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / count))


def test_many_parameters_are_corrected_for(calibrated):
    uneven = calibrated._replace(p_values={"a": 0.009, "b": 0.9})
    assert uneven.p_value == pytest.approx(0.018)
    assert uneven.passed()
    assert not uneven.passed(0.05)


@pytest.mark.parametrize(
    ("draws", "error", "says"),
    [
        (jnp.zeros(50), follmer.InputError, "fewer than num_draws"),
        (jnp.zeros((NUM_DRAWS, 2)), follmer.InputError, "shape"),
        ({"other": jnp.zeros(NUM_DRAWS)}, follmer.InputError, "the names that simulate uses"),
        (jnp.full(NUM_DRAWS, jnp.nan), follmer.NonFiniteError, "not finite"),
    ],
)
def test_draws_that_cannot_be_ranked_are_refused(draws, error, says, key):
    with pytest.raises(error, match=says):
        sbc(lambda key: (jnp.array(0.0), None), lambda data, key: draws, key=key)


@pytest.mark.parametrize("options", [{"num_simulations": 3}, {"num_draws": 2}, {"draws": 3}])
def test_options_that_tell_nothing_are_refused(options, key):
    with pytest.raises(follmer.InputError):
        sbc(simulate, exact(), key=key, **options)


SMALL = {
    "num_iterations": 100,
    "num_steps": 8,
    "num_paths": 64,
    "drift": "mlp",
    "drift_options": {"width": 16, "depth": 1},
}
NUM_FITS = 40


def resampled(target, key):
    """Draws by a small flow, trained as it is: no search for its settings in every simulation.

    Targets differ in their data alone (`with_data`), so that all but the first compile nothing.
    """
    fit_key, draw_key = jax.random.split(key)
    posterior = follmer.fit(follmer.NSFS(target, **SMALL), key=fit_key, check=False, progress=False)
    return posterior.resample(NUM_DRAWS, key=draw_key)


@pytest.mark.slow
def test_follmer_is_calibrated_on_a_conjugate_model():
    target = follmer.Target(
        log_prior=lambda theta: jnp.sum(jax.scipy.stats.norm.logpdf(theta["location"])),
        log_likelihood=lambda theta, rows: jnp.sum(
            jax.scipy.stats.norm.logpdf(rows, theta["location"]), axis=1
        ),
        data=jnp.zeros((NUM_DATA, 2)),
        like={"location": jnp.zeros(2)},
    )

    def fit(data, key):
        return resampled(target.with_data(data), key)

    found = sbc(simulate, fit, key=jax.random.key(5), num_simulations=NUM_FITS)
    assert found.passed(), found.summary()


@pytest.mark.slow
def test_follmer_is_calibrated_on_a_logistic_model():
    columns = jax.random.normal(jax.random.key(6), (30, 2))

    def simulate_labels(key):
        weights_key, label_key = jax.random.split(key)
        weights = jax.random.normal(weights_key, (2,))
        labels = jax.random.bernoulli(label_key, jax.nn.sigmoid(columns @ weights))
        return weights, jnp.where(labels, 1.0, -1.0)

    target = follmer.Target(
        log_prior=lambda w: jnp.sum(jax.scipy.stats.norm.logpdf(w)),
        log_likelihood=lambda w, rows: jax.nn.log_sigmoid(rows[1] * (rows[0] @ w)),
        data=(columns, jnp.ones(30)),
        like=jnp.zeros(2),
    )

    def fit(signs, key):
        return resampled(target.with_data((columns, signs)), key)

    found = sbc(simulate_labels, fit, key=jax.random.key(7), num_simulations=NUM_FITS)
    assert found.passed(), found.summary()
