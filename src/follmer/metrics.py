"""How good predictions are: numpy arrays in, a number out.

Classifiers are judged by `probabilities`, one row per data point and one column per class, already
averaged over the posterior's draws; `labels` are the columns that came true.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from follmer.errors import InputError, optional_module
from follmer.tools.checks import as_key, options_checked, positive_int

# Averages of 32-bit probabilities sum to one this nearly.
_TOLERANCE = 1e-4

Probabilities = Float[np.ndarray, "rows classes"]
Labels = Int[np.ndarray, " rows"]
LogLikelihoods = Float[np.ndarray, "draws rows"]


class CalibrationCurve(NamedTuple):
    """Mean confidence, accuracy and number of points of each bin; nan where a bin is empty."""

    confidences: Float[np.ndarray, " bins"]
    accuracies: Float[np.ndarray, " bins"]
    counts: Int[np.ndarray, " bins"]


@options_checked
def accuracy(probabilities: Probabilities, labels: Labels) -> float:
    """The share of points whose most probable class came true."""
    probabilities, labels = _classified(probabilities, labels)
    return float(_sklearn().accuracy_score(labels, probabilities.argmax(axis=1)))


@options_checked
def brier(probabilities: Probabilities, labels: Labels) -> float:
    """The mean over points of Σ over classes of (probability − outcome)², from 0 to 2.

    For two classes this is twice the square of the positive class alone.
    """
    probabilities, labels = _classified(probabilities, labels)
    # scikit-learn refuses the rounding that the checks here let pass.
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    classes = np.arange(probabilities.shape[1])
    score = _sklearn().brier_score_loss
    return float(score(labels, probabilities, labels=classes, scale_by_half=False))


@options_checked
def calibration_curve(
    probabilities: Probabilities, labels: Labels, *, num_bins: int = 10
) -> CalibrationCurve:
    """How often the most probable class came true, by the confidence in it.

    Confidence is the largest probability of a row; bins are (low, high], of equal width.
    """
    probabilities, labels = _classified(probabilities, labels)
    correct = probabilities.argmax(axis=1) == labels
    return _curve(probabilities.max(axis=1), correct, positive_int("num_bins", num_bins))


@options_checked
def expected_calibration_error(
    probabilities: Probabilities, labels: Labels, *, num_bins: int = 10
) -> float:
    """The mean over points of |accuracy − confidence| of their bin; see `calibration_curve`.

    A perfect predictor does not reach 0 on finitely many points: compare `calibration_floor`.
    """
    return _calibration_error(calibration_curve(probabilities, labels, num_bins=num_bins))


@options_checked
def calibration_floor(
    probabilities: Probabilities,
    *,
    key: PRNGKeyArray,
    num_bins: int = 10,
    num_simulations: int = 200,
) -> float:
    """The mean calibration error of these probabilities if every one of them were true.

    Outcomes are simulated from the probabilities themselves: what a calibrated predictor as
    confident as this one shows on so many points. Errors near it say nothing against a predictor.
    """
    confidence = _checked_probabilities(probabilities).max(axis=1)
    num_bins = positive_int("num_bins", num_bins)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))))
    # The most probable class comes true as often as its probability says.
    errors = [
        _calibration_error(_curve(confidence, rng.random(len(confidence)) < confidence, num_bins))
        for _ in range(positive_int("num_simulations", num_simulations))
    ]
    return float(np.mean(errors))


@options_checked
def mean_squared_error(predictions: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> float:
    """The mean of (prediction − y)²."""
    predictions, y = _alike(predictions=predictions, y=y)
    return float(_sklearn().mean_squared_error(y.ravel(), predictions.ravel()))


@options_checked
def interval_coverage(
    lower: Float[np.ndarray, "..."], upper: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]
) -> float:
    """The share of y in [lower, upper]; a calibrated 90 % interval covers 0.9."""
    lower, upper, y = _alike(lower=lower, upper=upper, y=y)
    if (lower > upper).any():
        raise InputError(
            f"lower is above upper in {np.sum(lower > upper)} of {y.size} places.",
            cause="the bounds were passed the wrong way round",
        )
    return float(np.mean((lower <= y) & (y <= upper)))


@options_checked
def gibbs_log_likelihood(
    log_likelihoods: LogLikelihoods, weights: Float[np.ndarray, " draws"] | None = None
) -> float:
    """The mean over draws of log p(y | θ), per data point: what the paper reports.

    It judges one draw at a time, as if predictions were made by a single θ at random. It is never
    above `log_predictive_density`, the score of the averaged prediction (Jensen).

    **Arguments:**

    - `log_likelihoods`: log p(y_i | θ_s), one row per draw and one column per data point.
    - `weights`: normalised importance weights of the draws; equal where left out.
    """
    log_likelihoods, weights = _weighted(log_likelihoods, weights)
    return float(np.mean(weights @ log_likelihoods))


@options_checked
def log_predictive_density(
    log_likelihoods: LogLikelihoods, weights: Float[np.ndarray, " draws"] | None = None
) -> float:
    """The mean over data points of log of the mean over draws of p(y | θ): the proper score.

    It judges the posterior predictive distribution, in which the draws are averaged first; the
    paper's number, which averages logarithms, is `gibbs_log_likelihood`. Takes the same arguments.
    """
    log_likelihoods, weights = _weighted(log_likelihoods, weights)
    terms = log_likelihoods + np.log(weights)[:, None]
    return float(np.mean(np.logaddexp.reduce(terms, axis=0)))


def _curve(
    confidence: Float[np.ndarray, " rows"], correct: Bool[np.ndarray, " rows"], num_bins: int
) -> CalibrationCurve:
    # In the confidence's own precision, so that 0.3 lies on the edge of its bin and not beyond it.
    edges = (np.arange(1, num_bins) / num_bins).astype(confidence.dtype)
    place = np.searchsorted(edges, confidence, side="left")
    counts = np.bincount(place, minlength=num_bins)
    sums = (np.bincount(place, values, num_bins) for values in (confidence, correct))
    means = [np.where(counts > 0, total / np.maximum(counts, 1), np.nan) for total in sums]
    return CalibrationCurve(means[0], means[1], counts)


def _calibration_error(curve: CalibrationCurve) -> float:
    gaps = np.nan_to_num(np.abs(curve.accuracies - curve.confidences))
    return float(gaps @ curve.counts / curve.counts.sum())


def _classified(probabilities: Any, labels: Any) -> tuple[Probabilities, Labels]:
    probabilities, labels = _checked_probabilities(probabilities), np.asarray(labels)
    rows, classes = probabilities.shape
    if labels.shape != (rows,):
        raise InputError(
            f"labels has shape {labels.shape}; {rows} rows of probabilities want {(rows,)}.",
            cause="one-hot labels, or those of another set",
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(
            f"labels are {labels.dtype}, not whole numbers.", hint="labels.astype(int)"
        )
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        raise InputError(
            f"labels hold {labels[outside][0]}, which is not a class from 0 to {classes - 1}.",
            cause="labels that start at 1, or are −1 and 1",
        )
    return probabilities, labels


def _checked_probabilities(probabilities: Any) -> Probabilities:
    probabilities = _numbers("probabilities", probabilities)
    if probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise InputError(
            f"probabilities has shape {probabilities.shape}; one row per data point and one column "
            "per class are wanted.",
            cause="draws not averaged yet, or the positive class alone",
            hint="the mean over draws; np.column_stack([1 - p, p]) for two classes",
        )
    if probabilities.min() < 0 or np.abs(probabilities.sum(axis=1) - 1).max() > _TOLERANCE:
        raise InputError(
            "rows of probabilities are negative somewhere or do not sum to one.",
            cause="logits or log probabilities were passed",
            hint="jax.nn.softmax",
        )
    return probabilities


def _weighted(log_likelihoods: Any, weights: Any) -> tuple[LogLikelihoods, np.ndarray]:
    """The draws that have weight, and their weights."""
    # A draw may rule a point out.
    log_likelihoods = _numbers("log_likelihoods", log_likelihoods, minus_infinity=True)
    if log_likelihoods.ndim != 2:
        raise InputError(
            f"log_likelihoods has shape {log_likelihoods.shape}; one row per draw and one column "
            "per data point are wanted.",
        )
    count = len(log_likelihoods)
    weights = np.full(count, 1 / count) if weights is None else _numbers("weights", weights)
    if weights.shape != (count,):
        raise InputError(f"weights has shape {weights.shape}; {count} draws want {(count,)}.")
    if weights.min() < 0 or abs(weights.sum() - 1) > _TOLERANCE:
        raise InputError(
            "weights are negative somewhere or do not sum to one.",
            cause="log weights or unnormalised weights were passed",
            hint="jax.nn.softmax(log_weights)",
        )
    heavy = weights > 0
    return log_likelihoods[heavy], weights[heavy] / weights.sum()


def _alike(**arrays: Any) -> list[np.ndarray]:
    """The arrays, all of one shape."""
    checked = [_numbers(name, values) for name, values in arrays.items()]
    shapes = {name: values.shape for name, values in zip(arrays, checked, strict=True)}
    if len(set(shapes.values())) > 1:
        listing = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
        raise InputError(f"the arrays differ in shape ({listing}).")
    return checked


def _numbers(name: str, values: Any, *, minus_infinity: bool = False) -> np.ndarray:
    """The values as floats, at least one of them and all finite (or −∞ where that is allowed)."""
    values = np.asarray(values)
    if values.dtype.kind not in "biuf" or values.size == 0:
        raise InputError(f"{name} holds no real numbers: {values.dtype}, shape {values.shape}.")
    if values.dtype.kind != "f":
        values = values.astype(float)
    good = np.isfinite(values)
    if minus_infinity:
        good |= values == -np.inf
    if not good.all():
        raise InputError(f"{name} is not finite in {np.sum(~good)} of {values.size} places.")
    return values


def _sklearn() -> Any:
    return optional_module("sklearn.metrics", extra="sklearn", purpose="this metric")
