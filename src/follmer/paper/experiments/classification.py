"""What the classification experiments share: metrics and figures of class probabilities."""

from collections.abc import Iterator, Sequence

import jax
import numpy as np

from follmer import metrics, plots
from follmer.paper.experiments.experiment import Draws, Picture, Trial


def judged(draws: Draws, x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy, calibration and both likelihoods of predictions at x."""
    prediction = draws.predict(x, labels)
    probabilities = np.asarray(prediction.probabilities, float)
    return {
        "accuracy": metrics.accuracy(probabilities, labels),
        "ece": metrics.expected_calibration_error(probabilities, labels),
        "ece_floor": metrics.calibration_floor(probabilities, key=jax.random.key(0)),
        "brier": metrics.brier(probabilities, labels),
        "gibbs_log_likelihood": float(np.mean(prediction.gibbs_log_likelihood)),
        "log_predictive_density": float(np.mean(prediction.log_predictive_density)),
    }


def calibration(trials: Sequence[Trial], x: np.ndarray, labels: np.ndarray) -> Iterator[Picture]:
    """Calibration curves of all methods' predictions at x."""
    curves = {
        trial.method: metrics.calibration_curve(
            np.asarray(trial.draws.predict(x).probabilities, float), labels
        )
        for trial in trials
    }
    figure, axes = plots.figure()
    plots.calibration(axes[0, 0], curves)
    yield Picture(
        "calibration",
        "Calibration",
        "How often predictions come true, by the confidence in them, on the test set; above, the "
        "share of predictions in each bin. A calibrated method lies on the dashed line, an "
        "overconfident one below it. Bars are one standard error of a bin's points.",
        figure,
    )
