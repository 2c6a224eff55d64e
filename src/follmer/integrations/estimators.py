"""Estimators of scikit-learn: a regressor and a classifier with a posterior inside."""

import abc
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from follmer.errors import InputError, user_stack_level
from follmer.fitting.fit import fit
from follmer.integrations import estimator_files
from follmer.integrations.estimator_predictions import predicted, sampled_y
from follmer.integrations.tables import (
    Form,
    Scaling,
    as_form,
    as_noise,
    is_per_row,
    log_mean,
    log_shares,
    scaling_of,
    table_target,
)
from follmer.judging import Verdict
from follmer.posterior.prediction import Prediction
from follmer.targets import Target, likelihoods
from follmer.targets.likelihoods import AbstractLikelihood
from follmer.tools.checks import fraction, positive_float, positive_int
from follmer.tools.keys import named_key


class _FollmerEstimator(BaseEstimator):
    """What both estimators share: the fit, predictions in the scaled units, files."""

    def __init__(
        self,
        model: str = "network",
        *,
        hidden_layer_sizes: Any = (16, 16),
        activation: str = "relu",
        prior_scale: float | str = "auto",
        num_draws: int = 512,
        fit_options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.model = model
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior_scale = prior_scale
        self.num_draws = num_draws
        self.fit_options = fit_options
        self.random_state = random_state
        self.verbose = verbose

    @property
    def verdict_(self) -> Verdict | None:
        """What the predictions are good for."""
        check_is_fitted(self)
        return self.posterior_.verdict

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file; `load` reads it back. Nothing is pickled."""
        check_is_fitted(self)
        estimator_files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote."""
        found = estimator_files.load(path)
        if not isinstance(found, cls):
            raise InputError(
                f"{path} holds a {type(found).__name__}, not a {cls.__name__}.",
                hint=f"{type(found).__name__}.load(path), or follmer.sklearn.load(path)",
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "posterior_" in state:
            state = {**state, "posterior_": estimator_files.packed(state["posterior_"])}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "posterior_" in state:
            self.posterior_ = estimator_files.unpacked(state["posterior_"], self)

    def _target(self, x: np.ndarray, y: np.ndarray) -> Target:
        return table_target(x, y, self._form(), self._likelihood(), self.offset_)

    def _form(self) -> Form:
        given = self.prior_scale
        is_open = isinstance(given, str) and given == "auto"
        scale = self._usual_scale() if is_open else positive_float("prior_scale", given)
        return as_form(self.model, self.hidden_layer_sizes, self.activation, scale)

    def _usual_scale(self) -> float | None:
        """The prior standard deviation of weights where none was given; None if data tell it."""
        return 1.0

    @abc.abstractmethod
    def _likelihood(self) -> AbstractLikelihood:
        """How y scatters around the network's outputs."""

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Reach the posterior of scaled rows."""
        positive_int("num_draws", self.num_draws)
        options = _checked_options(self.fit_options)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        key = named_key(jax.random.key(self.seed_), "fit")
        self.posterior_ = fit(
            self._target(x, y), key=key, **{"progress": bool(self.verbose), **options}
        )
        judged = self.posterior_.judgement
        if judged is not None and judged.verdict is Verdict.DO_NOT_USE:
            warnings.warn(
                f"the posterior's verdict is 'do not use': {judged.advice}",
                ConvergenceWarning,
                stacklevel=user_stack_level(),
            )

    def _rows(self, X: Any) -> np.ndarray:  # noqa: N803
        """The rows of X, checked and scaled."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return self.x_scaling_.scaled(rows)

    def _predicted(
        self, rows: np.ndarray, y: np.ndarray | None = None, quantiles: tuple[float, ...] = ()
    ) -> Prediction:
        """The posterior's predictions at scaled rows, and of scaled y."""
        key = named_key(jax.random.key(self.seed_), "predictions")
        return predicted(self.posterior_, rows, y, quantiles, self.num_draws, key)

    def _sampled(self, rows: np.ndarray, count: Any, random_state: Any) -> np.ndarray:
        """Draws of y at scaled rows, (rows, draws)."""
        count = positive_int("n_samples", count)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return sampled_y(self.posterior_, rows, count, jax.random.key(seed))


class FollmerRegressor(RegressorMixin, _FollmerEstimator):
    """A regression whose predictions are distributions: a Bayesian network, or a linear model.

    X and y are standardised inside. The posterior is reached by `follmer.fit`; where it is not to
    be relied on, `fit` warns and `verdict_` says so.

    Parameters
    ----------
    model : "network", or "linear" for Bayesian linear regression.
    hidden_layer_sizes, activation : of the network; "relu", "tanh", "silu" or "gelu".
    likelihood : how y scatters. "normal", with one inferred noise; "student_t", for outliers;
        "normal_per_row" and "student_t_per_row", with a noise that the network learns for every
        row; "poisson" or "negative_binomial", for counts; one of `follmer.likelihoods`. "auto" is
        "student_t_per_row" for a network and "normal" for a linear model.
    prior_scale : the prior standard deviation of weights and biases, for standardised X and y;
        "auto" is 1.
    num_draws : draws of the posterior that predictions average over.
    fit_options : further arguments of `follmer.fit`.
    random_state : a seed or a generator, for answers that can be repeated.
    verbose : show progress.

    Attributes
    ----------
    posterior_ : the `follmer.Posterior` of the weights, for standardised X and y.
    verdict_ : what the predictions are good for.
    n_features_in_, feature_names_in_ : the columns seen by `fit`.
    """

    def __init__(
        self,
        model: str = "network",
        *,
        hidden_layer_sizes: Any = (16, 16),
        activation: str = "relu",
        likelihood: Any = "auto",
        prior_scale: float | str = "auto",
        num_draws: int = 512,
        fit_options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        super().__init__(
            model,
            hidden_layer_sizes=hidden_layer_sizes,
            activation=activation,
            prior_scale=prior_scale,
            num_draws=num_draws,
            fit_options=fit_options,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Reach the posterior given rows X and numbers y."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        likelihood = self._likelihood()
        nothing = Scaling(np.zeros(()), np.ones(()))
        self.x_scaling_ = scaling_of(x)
        self.y_scaling_ = nothing if likelihood.is_count else scaling_of(y)
        outputs = 2 if is_per_row(likelihood) else 1
        self.offset_ = log_mean(y) if likelihood.is_count else np.zeros(outputs)
        y = self.y_scaling_.scaled(np.asarray(y, float))
        self._fit(self.x_scaling_.scaled(x), y)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: N803
        """The mean of y at every row; with `return_std` its standard deviation too.

        The standard deviation is that of y itself: noise, and what is not known of the mean.
        """
        found = self._predicted(self._rows(X))
        center, unit = self.y_scaling_
        mean = center + unit * found.mean
        return (mean, unit * found.sd) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> np.ndarray:  # noqa: N803
        """The central interval that holds y with that probability: one row (low, high) for each."""
        tail = 0.5 * (1.0 - fraction("level", level))
        found = self._predicted(self._rows(X), quantiles=(tail, 1.0 - tail))
        if found.quantiles is None:
            raise InputError(f"{type(self._likelihood()).__name__} has no cdf, so no intervals.")
        center, unit = self.y_scaling_
        return center + unit * np.asarray(found.quantiles)

    def log_predictive_density(self, X: Any, y: Any) -> np.ndarray:  # noqa: N803
        """ln p(y) of every row, in y's own units; for counts, of a probability."""
        rows = self._rows(X)
        y = np.asarray(column_or_1d(y), float)
        check_consistent_length(rows, y)
        found = self._predicted(rows, self.y_scaling_.scaled(y))
        return np.asarray(found.log_predictive_density) - np.log(self.y_scaling_.unit)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:  # noqa: N803
        """Draws of y, noise included: an array (rows, n_samples)."""
        drawn = self._sampled(self._rows(X), n_samples, random_state)
        center, unit = self.y_scaling_
        return center + unit * drawn

    def _likelihood(self) -> AbstractLikelihood:
        return as_noise(self.likelihood, self._form())


class FollmerClassifier(ClassifierMixin, _FollmerEstimator):
    """A classifier whose probabilities are averages over a posterior: a network, or a linear model.

    Two classes take a Bernoulli likelihood, more a categorical one; "linear" is Bayesian logistic
    or softmax regression. X is standardised inside. The posterior is reached by `follmer.fit`;
    where it is not to be relied on, `fit` warns and `verdict_` says so.

    Parameters
    ----------
    model : "network" or "linear".
    hidden_layer_sizes, activation : of the network; "relu", "tanh", "silu" or "gelu".
    prior_scale : the prior standard deviation of weights and biases, for standardised X; "auto" is
        1 for a network, and for a linear model one that is learned with the weights
        (`follmer.priors.UnknownScale`, around 1.25).
    num_draws : draws of the posterior that predictions average over.
    fit_options : further arguments of `follmer.fit`.
    random_state : a seed or a generator, for answers that can be repeated.
    verbose : show progress.

    Attributes
    ----------
    classes_ : the labels, in the order of the probabilities.
    posterior_ : the `follmer.Posterior` of the weights, for standardised X.
    verdict_ : what the predictions are good for.
    n_features_in_, feature_names_in_ : the columns seen by `fit`.
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Reach the posterior given rows X and labels y."""
        x, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y holds one class only: every label is {self.classes_.tolist()[0]!r}.",
                cause="the rows were sorted by class before a split, or the labels were lost",
                hint="rows of at least two classes",
            )
        self.x_scaling_ = scaling_of(x)
        self.offset_ = log_shares(counts)
        self._fit(self.x_scaling_.scaled(x), labels)
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The most probable label of every row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The probability of every class, a column for each of `classes_`."""
        found = self._predicted(self._rows(X)).probabilities
        # Single precision leaves nothing of what is less probable than this.
        found = np.maximum(np.asarray(found), np.finfo(np.float32).tiny)
        return found / found.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """The logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def log_predictive_density(self, X: Any, y: Any) -> np.ndarray:  # noqa: N803
        """The log probability of every row's label."""
        rows = self._rows(X)
        y = column_or_1d(y)
        check_consistent_length(rows, y)
        found = self._predicted(rows, self._codes(y))
        return np.asarray(found.log_predictive_density)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:  # noqa: N803
        """Draws of labels: an array (rows, n_samples)."""
        places = self._sampled(self._rows(X), n_samples, random_state).astype(int)
        return self.classes_[places]

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """Places of the labels in `classes_`."""
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise InputError(
                f"y holds the label {y[unknown].tolist()[0]!r}, which fit has not seen.",
                hint=f"one of {self.classes_.tolist()}",
            )
        return np.searchsorted(self.classes_, y)

    def _usual_scale(self) -> float | None:
        return None if self.model == "linear" else 1.0

    def _likelihood(self) -> AbstractLikelihood:
        two = len(self.classes_) == 2
        return likelihoods.Bernoulli() if two else likelihoods.Categorical()


def _checked_options(options: Any) -> dict[str, Any]:
    """Further arguments of `follmer.fit`."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or "key" in options:
        raise InputError(
            f"fit_options is {options!r:.80}.",
            hint="a dict of arguments of follmer.fit other than key; random_state= seeds it",
        )
    return dict(options)


ESTIMATORS: tuple[type[_FollmerEstimator], ...] = (FollmerRegressor, FollmerClassifier)
