"""The experiments' data, and their metrics on draws made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from follmer.paper.experiments import (
    banana,
    gaussian_mixture,
    hyperspectral,
    ica,
    linear_regression,
    quadrature,
    step_function,
    unmixing,
)


def draws_of(sample):
    """Draws that are what `sample(number)` says."""
    return SimpleNamespace(
        sample=sample, method=SimpleNamespace(num_samples=2, is_timed_by_draws=False)
    )


def test_masses_are_the_shares_of_draws_nearest_to_each_mode():
    modes = gaussian_mixture.FOUR_MODES
    places = np.array([0, 0, 0, 0, 0, 0, 1, 1, 3, 3])
    draws = modes[places] + 0.3
    np.testing.assert_allclose(gaussian_mixture.mode_masses(draws, modes), [0.6, 0.2, 0, 0.2])
    found = gaussian_mixture.judged(draws_of(lambda number: draws), modes)
    assert found == {"modes_found": 3.0, "mode_weight_error": pytest.approx(0.35)}


def test_exact_draws_of_a_regression_err_as_much_as_exact_draws():
    known, rng = linear_regression.regression(32, 0), np.random.default_rng(1)
    mean, factor = known.posterior

    def ratios(scale):
        def sample(number):
            return mean + scale * rng.normal(size=(number, len(mean))) @ factor.T

        found = [linear_regression.judged(draws_of(sample), known) for _ in range(20)]
        return [
            np.array([one[f"predictive_{what}_ratio"] for one in found]) for what in ("mean", "std")
        ]

    for own in ratios(1.0):
        assert own.mean() == pytest.approx(1.0, abs=4 * own.std() / np.sqrt(20))
    assert ratios(2.0)[1].mean() > 5


def test_the_exact_posterior_solves_the_normal_equations():
    known = linear_regression.regression(8, 3)
    mean, factor = known.posterior
    precision = np.eye(9) + known.rows.T @ known.rows / 0.2**2
    np.testing.assert_allclose(factor @ factor.T @ precision, np.eye(9), atol=1e-9)
    np.testing.assert_allclose(precision @ mean, known.rows.T @ known.y / 0.2**2, rtol=1e-9)


def test_regressions_have_as_many_rows_as_parameters_and_fresh_test_rows():
    known = linear_regression.regression(8, 0)
    assert known.rows.shape == known.test_rows.shape == (9, 9)
    assert (known.rows[:, -1] == 1).all()
    assert not np.isin(known.rows[:, :-1], known.test_rows).any()
    assert not np.isin(known.rows[:, :-1], linear_regression.regression(8, 1).rows).any()


def test_the_authors_likelihood_of_components_leaves_ln_2_per_channel_out():
    test = np.array([[0.0, 0.0], [1.0, -2.0]])
    found = ica.judged(draws_of(lambda number: np.stack([np.eye(2)] * number)), test)
    by_hand = np.mean([0.0, -2 * np.log(np.cosh(1.0)) - 2 * np.log(np.cosh(2.0))])
    assert found["gibbs_log_likelihood"] == pytest.approx(by_hand, rel=1e-6)
    assert found["gibbs_log_likelihood_normalised"] == pytest.approx(
        by_hand - 2 * np.log(2), rel=1e-6
    )
    # Draws that agree leave nothing between the two.
    assert found["log_predictive_density"] == pytest.approx(by_hand - 2 * np.log(2), rel=1e-6)


def test_the_steps_likelihood_is_a_sum_without_the_gaussians_constant():
    step = step_function.data(0)
    sd = step_function.NOISE_SD
    log_prob = -0.5 * (step.y_test - 0.5) ** 2 / sd**2 - np.log(sd) - 0.5 * np.log(2 * np.pi)

    def predict(x, y, quantiles=()):
        return SimpleNamespace(
            mean=np.full(len(x), 0.5),
            quantiles=np.stack([np.zeros(len(x)), np.ones(len(x))]) if quantiles else None,
            gibbs_log_likelihood=log_prob,
            log_predictive_density=log_prob,
        )

    found = step_function.judged(SimpleNamespace(predict=predict), step)
    # Every test value is 0 or 1, five standard deviations from the prediction.
    assert found["gibbs_log_likelihood"] == pytest.approx(-0.5 * 25 * 100)
    parts = found["gibbs_log_likelihood_inside"] + found["gibbs_log_likelihood_outside"]
    assert parts == pytest.approx(found["gibbs_log_likelihood"])
    assert found["mse"] == pytest.approx(0.25)
    assert found["coverage_90"] == np.mean((step.y_fresh >= 0) & (step.y_fresh <= 1))


def test_the_steps_data_are_noisy_inside_the_range_and_noiseless_beyond():
    step = step_function.data(0)
    assert all(len(values) == 100 for values in step)
    assert np.abs(step.x).max() <= 3.5
    assert 3.5 < np.abs(step.x_test).max() <= 10
    np.testing.assert_array_equal(step.y_test, step.x_test >= 0)
    # The sample sd of 100 normals is within 4/√200 of .1, relatively.
    assert np.std(step.y - (step.x >= 0)) == pytest.approx(0.1, rel=4 / np.sqrt(200))
    assert not np.isin(step.x_fresh, step.x).any()


def test_bananas_split_divides_all_points(with_data):
    with_data("banana")
    split = banana.data(0)
    assert (split.x.shape, split.x_test.shape) == ((4770, 2), (530, 2))
    both = np.concatenate([split.x, split.x_test])
    whole = banana.datasets.load("banana").x
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(whole, axis=0))
    assert not np.array_equal(split.x_test, banana.data(1).x_test)


def test_components_are_trained_on_earlier_times_and_standardised_by_them(with_data):
    with_data("ica")
    train, test = ica.data()
    assert (train.shape, test.shape) == ((14184, 10), (3546, 10))
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(train.std(axis=0), 1, rtol=1e-4)
    raw = ica.datasets.load("meg").x
    back = test * raw[:14184].std(axis=0) + raw[:14184].mean(axis=0)
    np.testing.assert_allclose(back, raw[14184:], rtol=1e-3, atol=1e-2)


def test_unmixing_is_judged_by_the_truth_and_by_the_exact_posterior():
    scene = hyperspectral.simulated(0, (4, 4), 20)
    exact = quadrature.exact_posterior(scene)
    study = unmixing.Study(scene, exact)

    def sample(number):
        return {"local": {"abundances": np.stack([exact.mean + 0.01] * number)}}

    draws = draws_of(sample)
    draws.posterior = SimpleNamespace(target=hyperspectral.unmixing_target(scene).joint())
    found = unmixing.judged(draws, study, hold_out=True)
    assert found["abundance_error"] == pytest.approx(0.01, rel=1e-4)
    assert found["speckle"] == pytest.approx(hyperspectral.speckle(exact.mean, (4, 4)), rel=1e-4)
    # What is not amortised tells nothing of pixels held out.
    assert "held_out_rmse" not in found
