"""Metrics by hand-computed values, and against scikit-learn where it has a like."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import calibration
from sklearn import metrics as sklearn_metrics

from follmer import InputError, metrics

# Confidences .9, .8, .7, .6; right, right, wrong, right.
PROBABILITIES = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]])
LABELS = np.array([0, 1, 0, 0])


def random_predictions(rows=2000, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(classes), rows)
    labels = (rng.random((rows, 1)) < probabilities.cumsum(axis=1)).argmax(axis=1)
    return probabilities, labels


def random_log_likelihoods(draws=50, rows=30):
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(draws))
    return rng.normal(-2.0, 1.5, (draws, rows)), weights


def test_accuracy_counts_the_most_probable_class():
    assert metrics.accuracy(PROBABILITIES, LABELS) == 0.75


def test_brier_sums_over_the_classes():
    by_hand = 2 * np.mean([0.1**2, 0.2**2, 0.7**2, 0.4**2])
    assert metrics.brier(PROBABILITIES, LABELS) == pytest.approx(by_hand)


def test_brier_of_three_classes_is_the_distance_from_the_outcome():
    probabilities, labels = random_predictions(50)
    by_hand = np.mean(np.sum((probabilities - np.eye(3)[labels]) ** 2, axis=1))
    assert metrics.brier(probabilities, labels) == pytest.approx(by_hand)


def test_brier_knows_classes_that_no_label_has():
    assert metrics.brier([[0.5, 0.25, 0.25]], [0]) == pytest.approx(0.25 + 2 * 0.0625)


def test_calibration_error_weighs_the_bins_by_their_points():
    # One point in each of four bins: gaps .1, .2, .7, .4.
    error = metrics.expected_calibration_error(PROBABILITIES, LABELS)
    assert error == pytest.approx((0.1 + 0.2 + 0.7 + 0.4) / 4)
    # Bins (0, .5] and (.5, 1]: accuracy .75 and mean confidence .75 in the second.
    coarse = metrics.expected_calibration_error(PROBABILITIES, LABELS, num_bins=2)
    assert coarse == pytest.approx(0.0, abs=1e-12)


def test_the_curve_is_what_the_error_uses():
    curve = metrics.calibration_curve(PROBABILITIES, LABELS, num_bins=5)
    assert curve.counts.tolist() == [0, 0, 1, 2, 1]
    np.testing.assert_allclose(curve.confidences, [np.nan, np.nan, 0.6, 0.75, 0.9])
    np.testing.assert_array_equal(curve.accuracies, [np.nan, np.nan, 1, 0.5, 1])
    by_hand = (1 * 0.4 + 2 * 0.25 + 1 * 0.1) / 4
    error = metrics.expected_calibration_error(PROBABILITIES, LABELS, num_bins=5)
    assert error == pytest.approx(by_hand)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tenths", [4, 5, 6, 7, 8, 9, 10])
def test_a_bin_holds_its_upper_edge_and_not_its_lower_one(tenths, dtype):
    confidence = np.asarray(tenths / 10, dtype)
    rest = (1 - confidence) / 2
    above = np.nextafter(confidence, dtype(2))
    rows = np.array([[confidence, rest, rest], [above, rest, rest]], dtype)
    counts = metrics.calibration_curve(rows, [0, 0]).counts
    if tenths == 10:
        assert counts[-1] == 2
    else:
        assert (counts[tenths - 1], counts[tenths]) == (1, 1)


def test_the_curve_is_scikit_learns_on_two_classes():
    probabilities, labels = random_predictions(classes=2)
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    accuracies, confidences = calibration.calibration_curve(correct, confidence, n_bins=10)
    curve = metrics.calibration_curve(probabilities, labels)
    full = curve.counts > 0
    np.testing.assert_allclose(curve.accuracies[full], accuracies)
    np.testing.assert_allclose(curve.confidences[full], confidences)
    assert curve.counts.sum() == len(labels)


def test_the_floor_of_one_point_is_its_mean_error(key):
    # Right with probability .8 (error .2), wrong with probability .2 (error .8).
    num_simulations = 4000
    floor = metrics.calibration_floor([[0.2, 0.8]], key=key, num_simulations=num_simulations)
    sd = np.sqrt(0.8 * 0.2) * (0.8 - 0.2)
    assert floor == pytest.approx(0.32, abs=4 * sd / np.sqrt(num_simulations))


def test_the_floor_is_the_mean_error_over_labels_drawn_from_the_probabilities(key):
    probabilities, _ = random_predictions(rows=200)
    rng = np.random.default_rng(3)
    cumulated = probabilities.cumsum(axis=1)
    errors = [
        metrics.expected_calibration_error(
            probabilities, (rng.random((200, 1)) < cumulated).argmax(axis=1)
        )
        for _ in range(400)
    ]
    floor = metrics.calibration_floor(probabilities, key=key, num_simulations=400)
    assert floor == pytest.approx(np.mean(errors), abs=4 * np.std(errors) * np.sqrt(2 / 400))


def test_the_floor_falls_as_one_over_the_root_of_the_points(key):
    probabilities, _ = random_predictions(rows=1000)
    few = metrics.calibration_floor(probabilities, key=key)
    many = metrics.calibration_floor(np.tile(probabilities, (16, 1)), key=key)
    # Errors vary by a third of their mean at most; two means of 200 are compared.
    assert few / many == pytest.approx(4, rel=4 * 0.34 * np.sqrt(2 / 200))


def test_the_floor_of_certainty_is_zero(key):
    assert metrics.calibration_floor(np.eye(3), key=key) == 0


def test_the_floor_is_the_keys_alone(key):
    first, again = (metrics.calibration_floor(PROBABILITIES, key=key) for _ in range(2))
    assert first == again
    assert first != metrics.calibration_floor(PROBABILITIES, key=jax.random.key(1))


def test_mean_squared_error():
    assert metrics.mean_squared_error([1.0, 2.0, 4.0], [1, 3, 2]) == pytest.approx(5 / 3)
    assert metrics.mean_squared_error(np.ones((2, 3)), np.zeros((2, 3))) == 1.0


def test_interval_coverage_counts_the_ends_in():
    lower, upper = np.zeros(4), np.array([1.0, 1.0, 1.0, 0.0])
    assert metrics.interval_coverage(lower, upper, [0.0, 1.0, 1.5, 0.0]) == 0.75


def test_the_two_likelihoods_by_hand():
    densities = np.array([[0.5, 0.1], [0.25, 0.4]])
    gibbs = metrics.gibbs_log_likelihood(np.log(densities))
    proper = metrics.log_predictive_density(np.log(densities))
    assert gibbs == pytest.approx(np.log([0.5, 0.1, 0.25, 0.4]).mean())
    assert proper == pytest.approx((np.log(0.375) + np.log(0.25)) / 2)


def test_the_two_likelihoods_by_hand_with_weights():
    densities, weights = np.array([[0.5, 0.1], [0.25, 0.4]]), [0.8, 0.2]
    gibbs = metrics.gibbs_log_likelihood(np.log(densities), weights)
    proper = metrics.log_predictive_density(np.log(densities), weights)
    by_hand = [0.8 * np.log(0.5) + 0.2 * np.log(0.25), 0.8 * np.log(0.1) + 0.2 * np.log(0.4)]
    assert gibbs == pytest.approx(np.mean(by_hand))
    assert proper == pytest.approx((np.log(0.45) + np.log(0.16)) / 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_averaged_logarithm_is_below_the_logarithm_of_the_average(weighted):
    log_likelihoods, weights = random_log_likelihoods()
    chosen = weights if weighted else None
    gibbs = metrics.gibbs_log_likelihood(log_likelihoods, chosen)
    proper = metrics.log_predictive_density(log_likelihoods, chosen)
    assert gibbs < proper - 0.5
    # They agree where the draws do.
    equal = np.broadcast_to(log_likelihoods[:1], log_likelihoods.shape)
    assert metrics.gibbs_log_likelihood(equal, chosen) == pytest.approx(
        metrics.log_predictive_density(equal, chosen)
    )


def test_the_likelihoods_of_one_draw_are_scikit_learns_log_loss():
    probabilities, labels = random_predictions()
    log_likelihoods = np.log(probabilities[np.arange(len(labels)), labels])[None]
    log_loss = sklearn_metrics.log_loss(labels, probabilities, labels=[0, 1, 2])
    assert metrics.gibbs_log_likelihood(log_likelihoods) == pytest.approx(-log_loss)
    assert metrics.log_predictive_density(log_likelihoods) == pytest.approx(-log_loss)


def test_tiny_densities_do_not_underflow():
    assert metrics.log_predictive_density([[-1000.0], [-1000.0]]) == pytest.approx(-1000.0)


def test_a_draw_that_rules_a_point_out_costs_the_gibbs_number_all():
    log_likelihoods = [[-np.inf], [-1.0]]
    assert metrics.gibbs_log_likelihood(log_likelihoods) == -np.inf
    assert metrics.log_predictive_density(log_likelihoods) == pytest.approx(-1 - np.log(2))
    # Not where it has no weight.
    assert metrics.gibbs_log_likelihood(log_likelihoods, [0.0, 1.0]) == -1.0
    assert metrics.log_predictive_density(log_likelihoods, [0.0, 1.0]) == -1.0


def test_jax_arrays_are_taken_and_floats_given(key):
    p, y, log_likelihoods = jnp.asarray(PROBABILITIES), jnp.asarray(LABELS), jnp.zeros((2, 3))
    results = [
        metrics.accuracy(p, y),
        metrics.brier(p, y),
        metrics.expected_calibration_error(p, y),
        metrics.calibration_floor(p, key=key),
        metrics.mean_squared_error(p, p),
        metrics.interval_coverage(p, p, p),
        metrics.gibbs_log_likelihood(log_likelihoods, jnp.array([0.5, 0.5])),
        metrics.log_predictive_density(log_likelihoods),
    ]
    assert [type(result) for result in results] == [float] * len(results)
    assert results[1] == pytest.approx(metrics.brier(PROBABILITIES, LABELS))


JUDGES = [
    metrics.accuracy,
    metrics.brier,
    metrics.expected_calibration_error,
    metrics.calibration_curve,
]


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)
@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0, 1, 0, 2], "labels hold 2, which is not a class from 0 to 1"),
        ([-1, 1, 1, 1], "labels hold -1"),
        ([0, 1, 0], r"labels has shape \(3,\); 4 rows of probabilities want \(4,\)"),
        (np.eye(4, 2, dtype=int), r"(?s)labels has shape \(4, 2\).*one-hot"),
        ([0.0, 1.0, 0.0, 0.0], r"(?s)float64, not whole numbers.*astype"),
    ],
)
def test_labels_that_do_not_fit_are_refused(judge, labels, says):
    with pytest.raises(InputError, match=says):
        judge(PROBABILITIES, labels)


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)
@pytest.mark.parametrize(
    ("probabilities", "says"),
    [
        ([[np.nan, 1.0]], "probabilities is not finite in 1 of 2 places"),
        ([[0.5, 0.6]], "do not sum to one"),
        ([[-0.5, 1.5]], "negative somewhere"),
        ([0.5], r"(?s)shape \(1,\).*column_stack"),
        ([[1.0]], r"(?s)shape \(1, 1\).*column_stack"),
        (np.full((2, 1, 2), 0.5), r"(?s)shape \(2, 1, 2\).*mean over draws"),
        ([["a", "b"]], "holds no real numbers"),
        (np.zeros((0, 2)), "holds no real numbers"),
    ],
)
def test_what_is_no_distribution_over_classes_is_refused(judge, probabilities, says, key):
    with pytest.raises(InputError, match=says):
        judge(probabilities, [0])
    with pytest.raises(InputError, match=says):
        metrics.calibration_floor(probabilities, key=key)


@pytest.mark.parametrize(
    "likelihood", [metrics.gibbs_log_likelihood, metrics.log_predictive_density]
)
@pytest.mark.parametrize(
    ("log_likelihoods", "weights", "says"),
    [
        ([[np.nan]], None, "log_likelihoods is not finite in 1 of 1 places"),
        ([[np.inf]], None, "log_likelihoods is not finite"),
        ([0.0], None, r"log_likelihoods has shape \(1,\)"),
        ([[0.0], [0.0]], [1.0], r"weights has shape \(1,\); 2 draws want \(2,\)"),
        ([[0.0], [0.0]], [0.5, np.nan], "weights is not finite"),
        ([[0.0], [0.0]], [1.0, 1.0], "weights are negative somewhere or do not sum to one"),
        ([[0.0], [0.0]], [-1.0, 2.0], "weights are negative somewhere"),
    ],
)
def test_likelihoods_and_weights_that_do_not_fit_are_refused(
    likelihood, log_likelihoods, weights, says
):
    with pytest.raises(InputError, match=says):
        likelihood(log_likelihoods, weights)


def test_arrays_that_differ_in_shape_are_refused():
    with pytest.raises(InputError, match=r"predictions: \(2,\), y: \(2, 1\)"):
        metrics.mean_squared_error(np.zeros(2), np.zeros((2, 1)))
    with pytest.raises(InputError, match=r"lower: \(2,\), upper: \(2,\), y: \(3,\)"):
        metrics.interval_coverage(np.zeros(2), np.ones(2), np.zeros(3))


def test_numbers_that_are_none_are_refused():
    with pytest.raises(InputError, match="y is not finite in 1 of 2 places"):
        metrics.mean_squared_error(np.zeros(2), [0.0, np.nan])
    with pytest.raises(InputError, match="upper is not finite"):
        metrics.interval_coverage(np.zeros(1), [np.inf], np.zeros(1))


def test_bounds_the_wrong_way_round_are_refused():
    with pytest.raises(InputError, match="lower is above upper in 1 of 2 places"):
        metrics.interval_coverage([0.0, 1.0], [1.0, 0.0], [0.5, 0.5])


def test_options_are_checked(key):
    with pytest.raises(InputError, match="num_bins must be a whole number"):
        metrics.expected_calibration_error(PROBABILITIES, LABELS, num_bins=0)
    with pytest.raises(InputError, match="num_simulations must be a whole number"):
        metrics.calibration_floor(PROBABILITIES, key=key, num_simulations=0)
    with pytest.raises(InputError, match=r"(?s)'bins' is not an option here.*num_bins"):
        metrics.calibration_curve(PROBABILITIES, LABELS, bins=5)
    with pytest.raises(InputError, match="not a JAX random key"):
        metrics.calibration_floor(PROBABILITIES, key=0)


def test_without_scikit_learn_its_metrics_name_the_extra_and_the_others_work(monkeypatch):
    monkeypatch.delitem(sys.modules, "sklearn.metrics")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for judge in (metrics.accuracy, metrics.brier):
        with pytest.raises(InputError, match=r"(?s)needs sklearn.*follmer\[sklearn\]"):
            judge(PROBABILITIES, LABELS)
    assert metrics.expected_calibration_error(PROBABILITIES, LABELS) > 0
