"""A network's posterior judged by its predictions at training rows: agreement, and PSIS-LOO."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.judging.calibration import sharpness_of
from follmer.judging.pointwise import (
    pointwise_cdf,
    pointwise_log_likelihood,
    pointwise_moments,
)
from follmer.judging.predictive_audit import LIMITS, PredictiveAudit, halves_rhat
from follmer.judging.stacking import left_out_of_each, levels_by_chain
from follmer.mcmc.chains import nested_rhat
from follmer.targets import Target
from follmer.tools.keys import generator, named_key

# Training rows at which predictions are compared, and from which PSIS-LOO is estimated.
_ROWS = 512
# Training rows that tell the chains' shares, and how sure their average is, where rows are many: on
# protein (split 1) they give .012 nats more than 512 rows, on power (split 5) .002.
_MANY_ROWS = 4096
# Draws that are looked at: PSIS needs hundreds, more change little.
_DRAWS = 1024
# Pareto tail index from which a row's importance weights are not sound (arXiv:1507.02646).
_UNSOUND = 0.7
# Draws below which no tail can be fitted.
_FEWEST = 25


class Loo(NamedTuple):
    """PSIS-LOO of rows: log predictive densities, and the tail index k̂ of each row's weights."""

    elpd: Float[np.ndarray, " rows"]
    khat: Float[np.ndarray, " rows"]
    levels: Float[np.ndarray, " rows"]  # P(Y_i ≤ y_i | all rows but i), where asked for

    @property
    def mean(self) -> float:
        """Nats per row."""
        return float(np.mean(self.elpd))

    @property
    def se(self) -> float:
        """The standard error of the mean."""
        return float(np.std(self.elpd) / np.sqrt(len(self.elpd)))


def psis_loo(
    log_likelihood: Float[np.ndarray, "draws rows"],
    cdf: Float[np.ndarray, "draws rows"] | None = None,
    log_weights: Float[np.ndarray, "draws rows"] | None = None,
) -> Loo:
    """ln p(y_i | all rows but i), by Pareto-smoothed importance sampling (arviz-stats).

    `log_weights` are those of draws when a row is left out: their shares over its likelihood, equal
    shares unless given. `cdf` are their distribution functions at y.
    """
    from arviz_stats.base import array_stats

    count, num_rows = log_likelihood.shape
    log_weights = -log_likelihood if log_weights is None else log_weights
    elpd, khat, levels = np.empty(num_rows), *np.full((2, num_rows), np.nan)
    for row, (values, logs) in enumerate(zip(log_likelihood.T, log_weights.T, strict=True)):
        logs = logs - np.logaddexp.reduce(logs)
        # Likelihoods or weights that are equal have no tail.
        vary = min(np.ptp(values), np.ptp(logs)) > 1e-6
        if count >= _FEWEST and np.isfinite(values).all() and vary:
            try:
                with np.errstate(all="ignore"):
                    # ArviZ takes the negative of the log weights.
                    smooth, tail = array_stats.psislw(-logs)
            except ValueError:
                # All weights of the tail are equal: there is none.
                smooth, tail = logs, -np.inf
            if np.isfinite(smooth).all():
                logs, khat[row] = np.asarray(smooth), tail
            else:
                # A tail that cannot be smoothed is the worst there is.
                khat[row] = np.inf
        elpd[row] = np.logaddexp.reduce(logs + values)
        if cdf is not None:
            levels[row] = np.exp(logs) @ cdf[:, row]
    return Loo(elpd, khat, levels)


def has_many_rows(target: Target) -> bool:
    """Whether rows are so many that leaving one out hardly moves a chain."""
    return target.num_data is not None and target.dim <= LIMITS.at_stake * target.num_data


def rows_shared(target: Target, key: PRNGKeyArray) -> np.ndarray:
    """Places of the training rows that tell the chains' shares."""
    return rows_judged(target, key, _MANY_ROWS if has_many_rows(target) else _ROWS)


def rows_judged(target: Target, key: PRNGKeyArray, most: int = _ROWS) -> np.ndarray:
    """Places of the training rows at which predictions are judged."""
    assert target.num_data is not None
    count = min(most, target.num_data)
    return np.sort(generator(key, "rows").choice(target.num_data, count, replace=False))


def judged_draws(
    draws: Float[np.ndarray, "chains draws dim"],
) -> Float[np.ndarray, "chains fewer dim"]:
    """Evenly spaced draws of each chain, so many that judging stays quick."""
    chains, length, _ = draws.shape
    wanted = min(length, max(_DRAWS // chains, 1))
    return draws[:, np.unique(np.linspace(0, length - 1, wanted).astype(int))]


def audit_predictions(
    target: Target,
    draws: Float[Array | np.ndarray, "chains draws dim"],
    key: PRNGKeyArray,
    shares: Float[np.ndarray, " chains"] | None = None,
) -> PredictiveAudit:
    """How chains predict at a sample of the training rows, each with its share."""
    draws = judged_draws(np.asarray(draws))
    chains, length, dim = draws.shape
    rows = rows_judged(target, key)
    flat = draws.reshape(-1, dim)
    logs = pointwise_log_likelihood(target, flat, rows, progress=False)
    means, noise = pointwise_moments(target, flat, rows)
    by_chain = means.reshape(chains, length, -1)
    logs_by_chain = logs.reshape(chains, length, -1)
    rhat, rhat_likelihood, settled, width = _agreement(by_chain, noise, logs_by_chain.sum(axis=2))
    many = has_many_rows(target)
    shares = np.full(chains, 1.0 / chains) if shares is None else shares
    cdf = pointwise_cdf(target, flat, rows)
    loo = _left_out(logs_by_chain, shares, cdf, by_chain=many)
    unsound = float(np.mean(loo.khat > _UNSOUND))
    if many and cdf is not None:
        levels = _levels(target, draws, named_key(key, "levels"), shares)
    else:
        levels = loo.levels
    known = np.isfinite(levels).all() and unsound <= LIMITS.unsound
    change = _change(*(half.reshape(-1, len(rows)) for half in _halves(logs_by_chain)))
    return PredictiveAudit(
        num_chains=chains,
        num_draws=chains * length,
        num_rows=len(rows),
        at_stake=target.dim / (target.num_data or 1),
        rhat=rhat,
        rhat_log_likelihood=rhat_likelihood,
        rhat_halves=settled[0],
        rhat_halves_se=settled[1],
        own_width=width,
        drift=float(np.mean(change)),
        drift_se=float(np.std(change) / np.sqrt(len(change))),
        loo=loo.mean,
        loo_se=loo.se,
        unsound=unsound,
        without_x=_without_x(target, rows),
        sharpness=sharpness_of(levels, 0.5 / len(flat)) if known else 1.0,
    )


def _left_out(
    log_likelihood: Float[np.ndarray, "chains draws rows"],
    shares: Float[np.ndarray, " chains"],
    cdf: Float[np.ndarray, "all rows"] | None,
    *,
    by_chain: bool,
) -> Loo:
    """PSIS-LOO of all draws, chains with their shares.

    To leave a row out would not move chains from mode to mode, and yet the weights of a pool do so:
    beside test rows it is .07 nats too low on power and .27 on protein (a split each). Weights in
    each chain alone are within .04 there; but where rows are few, chains have not seen all of their
    modes, and they are .15 to .25 too high on concrete and wine.
    """
    rows = log_likelihood.shape[2]
    log_shares = np.log(shares)[:, None, None]
    weights = left_out_of_each(log_likelihood) if by_chain else -log_likelihood
    flat, logs = (part.reshape(-1, rows) for part in (log_likelihood, log_shares + weights))
    return psis_loo(flat, cdf=cdf, log_weights=logs)


def _levels(
    target: Target,
    draws: Float[np.ndarray, "chains draws dim"],
    key: PRNGKeyArray,
    shares: Float[np.ndarray, " chains"],
) -> Float[np.ndarray, " rows"]:
    """P(Y_i ≤ y_i | all rows but i) at more rows than are judged."""
    rows, flat = rows_shared(target, key), draws.reshape(-1, draws.shape[-1])
    cdf = pointwise_cdf(target, flat, rows)
    assert cdf is not None
    logs = pointwise_log_likelihood(target, flat, rows, progress=False)
    by_chain = (*draws.shape[:2], len(rows))
    return levels_by_chain(logs.reshape(by_chain), cdf.reshape(by_chain), shares)


def _without_x(target: Target, rows: np.ndarray) -> float:
    """Log density of a row of y by y's own distribution: a normal one for each column, or the
    shares of values that are whole numbers, where they are less sure (classes have them alone)."""
    y = np.asarray(target.data["y"])
    columns = y.reshape(len(y), -1).astype(float)
    spread = np.maximum(columns.std(axis=0), np.finfo(float).tiny)
    normal = -float(np.sum(np.log(spread) + 0.5 * np.log(2.0 * np.pi * np.e)))
    if not np.array_equal(y, np.round(y)):
        return normal
    _, places, counts = np.unique(y, axis=0, return_inverse=True, return_counts=True)
    shares = float(np.mean(np.log(counts / len(y))[places.ravel()[rows]]))
    # Of whole numbers that hardly repeat, shares are those of single rows.
    return shares if np.issubdtype(y.dtype, np.integer) else min(shares, normal)


def _change(
    first: Float[np.ndarray, "draws rows"], second: Float[np.ndarray, "draws rows"]
) -> Float[np.ndarray, " rows"]:
    """Of log predictive densities from half to half: of LOO where both can leave the row out; else
    of the row as it is, since noise would drown it."""
    left_out = psis_loo(first), psis_loo(second)
    kept_in = [np.logaddexp.reduce(half, axis=0) - np.log(len(half)) for half in (first, second)]
    sound = ~((left_out[0].khat > _UNSOUND) | (left_out[1].khat > _UNSOUND))
    return np.where(sound, left_out[1].elpd - left_out[0].elpd, kept_in[1] - kept_in[0])


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = max(values.shape[1] // 2, 1)
    return values[:, :middle], values[:, -middle:]


def _agreement(
    means: Float[np.ndarray, "chains draws values"],
    noise: Float[np.ndarray, " values"],
    log_likelihood: Float[np.ndarray, "chains draws"],
) -> tuple[float, float, tuple[float, float], float]:
    """R-hats of predictions of y, of the log likelihood, of halves (and its standard error); the
    chains' own width."""
    chains, length, _ = means.shape
    nan = float("nan")
    if chains < 4 or length < 4:
        return nan, nan, (nan, nan), nan
    groups = chains // 2
    rhat = float(np.quantile(nested_rhat(means, groups, noise=noise), 0.9))
    likelihood = float(nested_rhat(log_likelihood[:, :, None], groups)[0])
    # B/W of single chains; W/(B + W) is the chains' own share.
    width = float(np.median(nested_rhat(means, chains) ** -2.0))
    halves, error = halves_rhat(means)
    return rhat, likelihood, (float(np.median(halves)), error), width
