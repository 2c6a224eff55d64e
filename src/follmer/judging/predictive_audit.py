"""What can be said of a network's posterior in function space, and what it is good for."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from follmer.mcmc.chains import rhat_of


class PredictiveAudit(NamedTuple):
    """How an ensemble of chains predicts; log densities are per row of y, in nats.

    Weight space has countless equal modes, so the chains are compared by what they predict.
    """

    num_chains: int
    num_draws: int
    num_rows: int  # training rows that were looked at
    at_stake: float  # coordinates per training row: what draws add to the variance of y, at most
    rhat: float  # nested R-hat of predictions of y that 9 in 10 rows do not exceed
    rhat_log_likelihood: float  # nested R-hat of the total log likelihood
    rhat_halves: float  # R-hat of predicted means between the halves of a chain, median of rows
    rhat_halves_se: float
    own_width: float  # share of the variance of the predicted means that is inside chains, median
    drift: float  # change of pooled draws' PSIS-LOO from the first half of the chains to the second
    drift_se: float
    loo: float  # PSIS-LOO of all draws, chains with their shares
    loo_se: float
    unsound: float  # share of rows with k̂ > .7
    without_x: float  # log density of y by its own distribution, which looks at no x
    sharpness: float  # of predictions, as rows left out would have it (`judging/calibration.py`)


class Limits(NamedTuple):
    """The thresholds of the verdict on predictions."""

    # Chains, and draws of each, from which agreement can be read: two groups of two.
    fewest_chains: int = 4
    fewest_draws: int = 10
    # Nested R-hat of predictions up to which groups of chains agree: the means of two groups
    # differ by at most a fifth of the variance (1.01 to 1.08 on the six sets of `bench networks`).
    agree: float = 1.1
    # R-hat between halves of a chain, two standard errors added, up to which chains have settled:
    # more than two effective draws a half (1.03 to 1.16 ± .02 on the six sets, 1.2 and more for
    # chains of 80 to 400 steps on concrete; energy's short chains are not seen).
    settled: float = 1.2
    # What chains that have not settled may miss of the variance of y, where it hardly matters: a
    # tenth, a twentieth of its sd. (On power and protein, of .05 and .01 coordinates per row, 90 %
    # intervals of a single point cover .90 of test rows.) Where there are no more coordinates per
    # row than that, rows are left out of each chain by itself.
    at_stake: float = 0.1
    # Share of the variance of predictions that is inside chains, below which they are points (.05
    # and more on the six sets, .002 for the ends of descents).
    least_width: float = 0.02
    # Nats per row, and standard errors, by which the two halves of chains may differ.
    drift: float = 0.05
    # Share of rows whose k̂ may be above .7. LOO is then too low rather than too high (by .1 where
    # classes can be told apart), so what is above a prediction without x even so is no illusion.
    unsound: float = 0.5


LIMITS = Limits()


def may_change(audit: PredictiveAudit, limits: Limits = LIMITS) -> bool:
    """Whether longer chains might predict otherwise; not where predictions are not finite."""
    settled = has_moved(audit, limits) and is_settled(audit, limits)
    matters = may_be_missed(audit, limits) > limits.at_stake
    known = np.isfinite((audit.rhat, audit.rhat_halves, audit.own_width, audit.drift)).all()
    agreed = audit.rhat <= limits.agree and abs(audit.drift) <= limits.drift
    return bool(known) and not (agreed and (settled or not matters))


def has_moved(audit: PredictiveAudit, limits: Limits = LIMITS) -> bool:
    """Whether chains are wider than the points where their descents ended."""
    return audit.own_width >= limits.least_width


def is_settled(audit: PredictiveAudit, limits: Limits = LIMITS) -> bool:
    """Whether the halves of chains agree, two standard errors granted to the other side."""
    return audit.rhat_halves + 2.0 * audit.rhat_halves_se <= limits.settled


def may_be_missed(audit: PredictiveAudit, limits: Limits = LIMITS) -> float:
    """What chains may miss of the variance of y, at most.

    Of its own width a chain misses 1/(2n) on average, where each half has n effective draws and so
    an R-hat of √(1 + 1/n); all of it where it has hardly moved.
    """
    if not has_moved(audit, limits):
        return audit.at_stake
    rhat = audit.rhat_halves + 2.0 * audit.rhat_halves_se
    return audit.at_stake * min(0.5 * (rhat**2 - 1.0), 1.0)


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
    if audit.rhat > limits.agree:
        return False, "the members' predictions disagree: more members, or a longer run"
    settled, moved = is_settled(audit, limits), has_moved(audit, limits)
    matters = may_be_missed(audit, limits) > limits.at_stake
    if matters and not moved:
        return False, (
            "the chains have hardly moved from where their descents ended, so predictions are too "
            "sure: a longer run"
        )
    if matters and not settled:
        return False, "the chains have not settled, so predictions are too sure: a longer run"
    if abs(audit.drift) > limits.drift + 2.0 * audit.drift_se:
        return False, "predictions still change along the chains: a longer run"
    if audit.loo + 2.0 * audit.loo_se < audit.without_x:
        return False, (
            "rows that are left out are less likely than by y's own distribution, which looks at "
            "no x: a dead output, a noise that is set too small, or x that tells nothing of y"
        )
    good = "members agree in what they predict, and the chains have settled; "
    if not (settled and moved):
        what = "have not settled" if moved else "have hardly moved from where their descents ended"
        good = (
            f"members agree in what they predict; the chains {what}, which changes little with so "
            "many rows; "
        )
    if audit.unsound > limits.unsound:
        held_out = "look at held-out rows, with predict(x, y=…)"
        if audit.loo - 2.0 * audit.loo_se <= audit.without_x:
            return False, (
                "most rows decide their own predictions (k̂ > .7), and left out they are no "
                f"likelier than without x: {held_out}"
            )
        return True, (
            f"{good}LOO is too low where most rows decide their own predictions (k̂ > .7): "
            f"{held_out}"
        )
    return True, f"{good}single weights mean nothing, so use predict()"


def halves_rhat(
    values: Float[np.ndarray, "chains draws quantities"],
) -> tuple[Float[np.ndarray, " quantities"], float]:
    """R-hat between the halves of a chain, pooled over chains; the standard error of its median.

    A half of n effective draws makes it √(1 + 1/n). The error is the jackknife's, over chains.
    """
    middle = values.shape[1] // 2
    first, second = values[:, :middle], values[:, -middle:]
    between = 0.5 * (first.mean(axis=1) - second.mean(axis=1)) ** 2
    inside = 0.5 * (first.var(axis=1, ddof=1) + second.var(axis=1, ddof=1))
    count = len(values)
    sums = between.sum(axis=0), inside.sum(axis=0)
    without = [
        np.median(rhat_of(sums[0] - own, sums[1] - rest))
        for own, rest in zip(between, inside, strict=True)
    ]
    return rhat_of(*sums), float(np.std(without) * np.sqrt(count - 1))
