"""scikit-learn's own checks of an estimator, whole."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

from follmer.sklearn import FollmerClassifier, FollmerRegressor

# Dozens of small data sets, each of a shape of its own: short chains, of which nothing is said.
BRIEF = {"precondition": "ensemble", "num_iterations": 200, "audit": False, "check": False}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [FollmerRegressor, FollmerClassifier])
def test_it_passes_the_checks_of_scikit_learn(kind):
    estimator = kind(hidden_layer_sizes=(8,), num_draws=64, fit_options=BRIEF)
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 40
    # The array API is only looked at where SciPy was told to before it was loaded.
    others = {one["check_name"] for one in results if one["status"] != "passed"}
    assert others <= {"check_array_api_input"}
