"""What can be said of a network's posterior in function space, and what it is good for."""

from typing import NamedTuple

import numpy as np


class PredictiveAudit(NamedTuple):
    """How an ensemble of chains predicts; log densities are per row of y, in nats.

    Weight space has countless equal modes, so the chains are compared by what they predict.
    """

    num_chains: int
    num_draws: int
    num_rows: int  # training rows that were looked at
    rhat: float  # nested R-hat of predictions of y that 9 in 10 rows do not exceed
    rhat_log_likelihood: float  # nested R-hat of the total log likelihood
    rhat_halves: float  # R-hat of predicted means between the halves of a chain, median of rows
    own_width: float  # share of the variance of the predicted means that is inside chains, median
    drift: float  # change of pooled draws' PSIS-LOO from the first half of the chains to the second
    drift_se: float
    loo: float  # of rows left out, by the chains with their shares
    loo_se: float
    unsound: float  # share of rows with k̂ > .7
    best_member: float  # the same by the best chain alone


class Limits(NamedTuple):
    """The thresholds of the verdict on predictions."""

    # Chains, and draws of each, from which agreement can be read: two groups of two.
    fewest_chains: int = 4
    fewest_draws: int = 10
    # Nested R-hat of predictions up to which groups of chains agree: the means of two groups
    # differ by at most a fifth of the variance (1.01 to 1.08 on the six sets of `bench networks`).
    agree: float = 1.1
    # R-hat between halves of a chain up to which chains have settled (1.03 to 1.11 on the six sets,
    # 1.2 and more for chains of 80 to 400 steps on concrete; energy's short chains are not seen).
    settled: float = 1.15
    # Share of the variance of predictions that is inside chains, below which they are points (.05
    # and more on the six sets, .002 for the ends of descents).
    least_width: float = 0.02
    # Nats per row, and standard errors, by which the two halves of chains may differ.
    drift: float = 0.05
    # Share of rows whose k̂ may be above .7 (up to a third on the smallest of the six sets, where
    # LOO is then too low rather than too high).
    unsound: float = 0.5


LIMITS = Limits()


def judge_predictions(audit: PredictiveAudit, limits: Limits = LIMITS) -> tuple[bool, str]:
    """Whether predictions can be relied on, and why or what to do."""
    if audit.num_chains < limits.fewest_chains:
        return False, (
            "predictions of one mode tell nothing of the others, and are too sure of themselves: "
            "an ensemble (precondition='ensemble')"
        )
    if audit.num_draws < limits.fewest_draws * audit.num_chains:
        return False, "the chains are too short to be judged: a longer run"
    figures = (audit.rhat, audit.rhat_halves, audit.own_width, audit.drift, audit.loo)
    if not np.isfinite(figures).all():
        return False, "predictions are not finite: scaled x and y; target.check(key=…)"
    if audit.own_width < limits.least_width:
        return False, (
            "the chains have hardly moved from where their descents ended, so predictions are too "
            "sure: a longer run"
        )
    if audit.rhat > limits.agree:
        return False, "the members' predictions disagree: more members, or a longer run"
    if audit.rhat_halves > limits.settled:
        return False, "the chains have not settled, so predictions are too sure: a longer run"
    if abs(audit.drift) > limits.drift + 2.0 * audit.drift_se:
        return False, "predictions still change along the chains: a longer run"
    if audit.unsound > limits.unsound:
        return False, (
            "too many rows decide their own predictions (k̂ > .7), so leaving one out says little: "
            "held-out rows, with predict(x, y=…)"
        )
    return True, (
        "members agree in what they predict, and the chains have settled; single weights mean "
        "nothing, so use predict()"
    )


def halves_rhat(values: np.ndarray) -> np.ndarray:
    """R-hat between the first and the second half of each chain, pooled over chains."""
    middle = values.shape[1] // 2
    first, second = values[:, :middle], values[:, -middle:]
    between = 0.5 * np.mean((first.mean(axis=1) - second.mean(axis=1)) ** 2, axis=0)
    variances = (first.var(axis=1, ddof=1), second.var(axis=1, ddof=1))
    return _rhat(between, np.mean(variances, axis=(0, 1)))


def nested_rhat(values: np.ndarray, num_groups: int, noise: np.ndarray | float = 0.0) -> np.ndarray:
    """Nested R-hat (Margossian et al. 2024, arXiv:2110.13017) of (chains, draws, quantities).

    Chains are put into groups; `noise` is variance that every draw has beside its mean, as that of
    y around a predicted mean.
    """
    num_chains, num_draws, _ = values.shape
    size = num_chains // num_groups
    grouped = values[: size * num_groups].reshape(num_groups, size, num_draws, -1)
    means = grouped.mean(axis=2)
    between = means.mean(axis=1).var(axis=0, ddof=1)
    inside = grouped.var(axis=2, ddof=1).mean(axis=(0, 1)) + noise
    if size > 1:
        inside = inside + means.var(axis=1, ddof=1).mean(axis=0)
    return _rhat(between, inside)


def _rhat(between: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """R-hat from variances; 1 where nothing varies at all, as for an output that is dead."""
    with np.errstate(all="ignore"):
        return np.sqrt(1.0 + np.where(between == 0, 0.0, between / inside))
