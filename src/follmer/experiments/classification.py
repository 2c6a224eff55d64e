"""What the classification experiments share: metrics and figures of class probabilities."""

import jax
import numpy as np

from follmer import metrics
from follmer.experiments.experiment import Draws


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
