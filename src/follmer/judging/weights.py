"""What exact log weights say: evidence bounds, effective sample size, Pareto k̂, other moments."""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, PyTree

from follmer.targets.space import named_leaves

# Below this many draws no tail can be fitted.
_MIN_DRAWS = 25
# Weights whose logs differ by less have no tail.
_EQUAL = 1e-4
# Scalars of a draw that are looked at.
_MOST_SCALARS = 4096


class Diagnostics(NamedTuple):
    """Evidence bound and estimate, and how evenly the weights spread.

    `elbo` ≤ ln Z; `log_evidence` ± `log_evidence_se` estimates ln Z by Pareto-smoothed weights, so
    that no single draw decides; `ess_fraction` is the effective share of draws; `khat` the Pareto
    tail index of the weights (above 0.7 the weighted answers cannot be relied on). `eubo` ≥ ln Z is
    the other side of the bracket, from draws that Markov chains made; nan without an audit.
    """

    elbo: float
    log_evidence: float
    log_evidence_se: float
    ess_fraction: float
    khat: float
    eubo: float = float("nan")


def diagnose(log_weights: ArrayLike, eubo: float = float("nan")) -> Diagnostics:
    """All diagnostics of a sample's log weights, with the upper bound where there is one."""
    log_weights = np.asarray(log_weights, float)
    smoothed, khat = pareto_smooth(log_weights)
    # Weights that are not finite are judged, not warned of.
    with np.errstate(invalid="ignore"):
        elbo = float(log_weights.mean())
        # Of the typical draw's weight nothing is smoothed: what it lost is ln of the sum.
        typical = np.argsort(log_weights)[log_weights.size // 2]
        log_sum = log_weights[typical] - smoothed[typical]
    log_evidence = float(log_sum - np.log(log_weights.size))
    if not np.isfinite(log_evidence):
        log_evidence, smoothed = log_mean_weight(log_weights), log_weights
    # Delta method: var(w)/mean(w)² = 1/ess − 1.
    variance = max(1.0 / ess_fraction(smoothed) - 1.0, 0.0)
    return Diagnostics(
        elbo=elbo,
        log_evidence=log_evidence,
        log_evidence_se=float(np.sqrt(variance / max(log_weights.size - 1, 1))),
        ess_fraction=ess_fraction(log_weights),
        khat=khat,
        eubo=eubo,
    )


def ess_fraction(log_weights: Float[np.ndarray, " draws"]) -> float:
    """(Σw)²/(S Σw²), between 1/S and 1; nan where the largest weight is not finite."""
    with np.errstate(invalid="ignore"):
        weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2) / weights.size)


def pareto_smooth(log_weights: ArrayLike) -> tuple[np.ndarray, float]:
    """Pareto-smoothed, self-normalised log weights and the tail index k̂ (ArviZ)."""
    log_weights = np.asarray(log_weights, float)
    top = log_weights.max()
    if not np.isfinite(top):
        return np.full_like(log_weights, np.nan), float("nan")
    normalised = log_weights - top - np.log(np.sum(np.exp(log_weights - top)))
    if log_weights.size < _MIN_DRAWS:
        return normalised, float("nan")
    if np.ptp(log_weights[np.isfinite(log_weights)]) < _EQUAL:
        return normalised, float("-inf")
    from arviz_stats.base import array_stats

    try:
        # ArviZ takes the negative of the log weights.
        with np.errstate(all="ignore"):
            smoothed, khat = array_stats.psislw(-log_weights)
    except ValueError:
        # All weights of the tail are equal: there is no tail.
        return normalised, float("-inf")
    if not np.isfinite(khat) or np.isnan(smoothed).any():
        return normalised, float("-inf") if np.isnan(khat) else float(khat)
    return np.asarray(smoothed), float(khat)


def weighted_moments(
    x: Float[np.ndarray, "draws dim"], weights: Float[np.ndarray, " draws"]
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Mean and covariance of draws by normalised weights."""
    mean = weights @ x
    deviations = x - mean
    return mean, (deviations.T * weights) @ deviations


def log_mean_weight(log_weights: Float[np.ndarray, " draws"]) -> float:
    """ln of the mean weight, the estimate of ln Z; not finite where the weights are not."""
    with np.errstate(invalid="ignore"):
        return float(np.logaddexp.reduce(log_weights) - np.log(log_weights.size))


class Answers(NamedTuple):
    """The largest differences between plain and weighted moments, over all scalars of a draw.

    `spread_error` is the largest relative standard error of a weighted standard deviation, that of
    the scalar `heaviest`: where tails are heavy, a few draws far out decide it.
    """

    mean_gap: float  # in standard deviations
    spread_gap: float  # of standard deviations, relative
    spread_error: float
    heaviest: str


def compare_answers(draws: PyTree, log_weights: Float[np.ndarray, " draws"]) -> Answers:
    """Plain beside weighted moments of the same draws."""
    names, values = scalars(draws)
    weights = np.exp(pareto_smooth(log_weights)[0])
    mean, sd = moments(values, weights)
    plain_mean, plain_sd = moments(values, np.full(len(values), 1.0 / len(values)))
    # Rounding does not count as moving.
    moving = sd > 1e-12 * np.abs(mean)
    if not moving.any():
        return Answers(0.0, 0.0, 0.0, names[0])
    errors = np.where(moving, spread_errors(values, weights), 0.0)
    # What is not a number is as bad as can be.
    gaps, spreads, errors = (
        np.nan_to_num(one, nan=np.inf)
        for one in (
            np.abs(plain_mean - mean)[moving] / sd[moving],
            np.abs(plain_sd[moving] / sd[moving] - 1.0),
            errors,
        )
    )
    heaviest = names[int(np.argmax(errors))]
    return Answers(float(gaps.max()), float(spreads.max()), float(errors.max()), heaviest)


def scalars(draws: PyTree) -> tuple[list[str], Float[np.ndarray, "draws scalars"]]:
    """Every scalar of a tree of draws by name, up to a number of them."""
    names: list[str] = []
    columns = []
    for leaf, value in named_leaves(draws):
        array = np.asarray(value, float)
        flat = array.reshape(len(array), -1)[:, : _MOST_SCALARS - len(names)]
        places = [",".join(map(str, place)) for place in np.ndindex(array.shape[1:])]
        names += [f"{leaf}[{place}]" if place else leaf for place in places[: flat.shape[1]]]
        columns.append(flat)
    return names, np.concatenate(columns, axis=1)


def moments(
    values: Float[np.ndarray, "draws scalars"], weights: Float[np.ndarray, " draws"]
) -> tuple[Float[np.ndarray, " scalars"], Float[np.ndarray, " scalars"]]:
    """Means and standard deviations by normalised weights."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weights @ values
        return mean, np.sqrt(np.maximum(weights @ (values - mean) ** 2, 0.0))


def spread_errors(
    values: Float[np.ndarray, "draws scalars"], weights: Float[np.ndarray, " draws"]
) -> Float[np.ndarray, " scalars"]:
    """Relative standard errors of weighted standard deviations, by the delta method."""
    mean, sd = moments(values, weights)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = ((values - mean) / sd) ** 2 - 1.0
        return 0.5 * np.sqrt(weights**2 @ squares**2)
