"""For scikit-learn: estimators whose predictions know how sure they are."""

from follmer.errors import optional_module

optional_module("sklearn", extra="sklearn", purpose="follmer.sklearn")

from follmer.integrations.estimator_files import load  # noqa: E402
from follmer.integrations.estimators import FollmerClassifier, FollmerRegressor  # noqa: E402

__all__ = ["FollmerClassifier", "FollmerRegressor", "load"]
