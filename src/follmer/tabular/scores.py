"""How good predictions of rows are, beside those of one who has never looked at the columns."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from follmer.columns import Outcome
from follmer.columns.outcome import COUNT

# Levels of quantiles at which predictions of numbers are compared with what came true.
LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))
# Central intervals whose coverage is told; their ends are among LEVELS.
INTERVALS = (0.5, 0.8, 0.9)
# The least spread of counts beyond Poisson's, relative to their mean.
_LEAST_EXCESS = 1e-6


class Baseline(NamedTuple):
    """What is predicted of every row without any column: frequencies, or a mean and an sd."""

    task: str
    values: tuple[float, ...]

    def log_density(self, y: np.ndarray) -> Float[np.ndarray, " rows"]:
        from scipy import stats

        if self.task == COUNT:
            mean, sd = self.values
            excess = max(sd**2 - mean, _LEAST_EXCESS * mean)
            size = mean**2 / excess
            return np.asarray(stats.nbinom.logpmf(y, size, size / (size + mean)))
        if _is_numeric(self.task):
            return np.asarray(stats.norm.logpdf(y, *self.values))
        return np.log(np.array(self.values))[y.astype(int)]

    def error(self, y: np.ndarray) -> float:
        """The root mean squared error, or the share of wrong classes."""
        if _is_numeric(self.task):
            return float(np.sqrt(np.mean((y - self.values[0]) ** 2)))
        return float(np.mean(y != int(np.argmax(self.values))))


class Scores(NamedTuple):
    """How rows that were held out are predicted."""

    num_rows: int
    log_density: float  # mean of ln p(y), in nats per row
    log_density_se: float
    baseline_log_density: float
    error: float  # root mean squared error, or the share of wrong classes
    baseline_error: float
    # Numbers: the share of y below the predicted quantile, at each of LEVELS, and inside each of
    # INTERVALS. Empty for classes.
    below: tuple[float, ...]
    coverage: tuple[float, ...]
    # Classes: the calibration error, and what it is where every probability is true.
    calibration_error: float | None
    calibration_floor: float | None

    def as_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Scores":
        lists = {name: tuple(fields[name]) for name in ("below", "coverage")}
        return cls(**{**fields, **lists})


def learn_baseline(outcome: Outcome, y: np.ndarray) -> Baseline:
    """The baseline of training rows."""
    if outcome.is_classes:
        counts = np.bincount(y.astype(int), minlength=len(outcome.classes))
        return Baseline(outcome.task, tuple((counts / counts.sum()).tolist()))
    return Baseline(outcome.task, (float(y.mean()), float(y.std())))


def score(
    baseline: Baseline, found: Any, y: np.ndarray, draws: np.ndarray | None, key: Any
) -> Scores:
    """The scores of what was predicted of y (`Predicted`, with quantiles at LEVELS).

    Of counts, `draws` of y are needed too, a row of them for each y.
    """
    from follmer.metrics import calibration_floor, expected_calibration_error

    below: tuple[float, ...] = ()
    coverage: tuple[float, ...] = ()
    calibration = floor = None
    if _is_numeric(baseline.task):
        error = float(np.sqrt(np.mean((found.mean - y) ** 2)))
        shares = (y[:, None] <= found.quantiles) if draws is None else _below_counts(draws, y)
        below = tuple(shares.mean(axis=0).tolist())
        coverage = tuple(_covered(found.quantiles, y, level) for level in INTERVALS)
    else:
        labels = y.astype(int)
        error = float(np.mean(found.probabilities.argmax(axis=1) != labels))
        calibration = expected_calibration_error(found.probabilities, labels)
        floor = calibration_floor(found.probabilities, key=key)
    return Scores(
        num_rows=len(y),
        log_density=float(np.mean(found.log_density)),
        log_density_se=float(np.std(found.log_density) / np.sqrt(len(y))),
        baseline_log_density=float(np.mean(baseline.log_density(y))),
        error=error,
        baseline_error=baseline.error(y),
        below=below,
        coverage=coverage,
        calibration_error=calibration,
        calibration_floor=floor,
    )


def _below_counts(
    draws: Float[np.ndarray, "rows draws"], y: np.ndarray
) -> Float[np.ndarray, "rows levels"]:
    """How far each count is below the quantile of each level: a share, for counts have steps.

    The non-randomised probability integral transform (Czado, Gneiting and Held 2009).
    """
    under, upto = (draws < y[:, None]).mean(axis=1), (draws <= y[:, None]).mean(axis=1)
    step = np.maximum(upto - under, 1.0 / draws.shape[1])
    return np.clip((np.array(LEVELS) - under[:, None]) / step[:, None], 0.0, 1.0)


def _covered(quantiles: Float[np.ndarray, "rows levels"], y: np.ndarray, level: float) -> float:
    tail = round(0.5 * (1.0 - level), 2)
    low, high = LEVELS.index(tail), LEVELS.index(round(1.0 - tail, 2))
    return float(np.mean((quantiles[:, low] <= y) & (y <= quantiles[:, high])))


def _is_numeric(task: str) -> bool:
    return task in ("regression", COUNT)
