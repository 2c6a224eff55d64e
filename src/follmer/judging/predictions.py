"""A network's posterior judged by its predictions at training rows: agreement, and PSIS-LOO."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.judging.pointwise import pointwise_log_likelihood, pointwise_moments
from follmer.judging.predictive_audit import PredictiveAudit, halves_rhat, nested_rhat
from follmer.judging.stacking import loo_by_chain, mixed
from follmer.targets import Target
from follmer.tools.keys import generator

# Training rows at which predictions are compared, and from which PSIS-LOO is estimated.
_ROWS = 512
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

    @property
    def mean(self) -> float:
        """Nats per row."""
        return float(np.mean(self.elpd))

    @property
    def se(self) -> float:
        """The standard error of the mean."""
        return float(np.std(self.elpd) / np.sqrt(len(self.elpd)))


def psis_loo(log_likelihood: Float[np.ndarray, "draws rows"]) -> Loo:
    """ln p(y_i | all rows but i), by Pareto-smoothed importance sampling (arviz-stats)."""
    from arviz_stats.base import array_stats

    count, num_rows = log_likelihood.shape
    elpd, khat = np.empty(num_rows), np.full(num_rows, np.nan)
    for row, values in enumerate(log_likelihood.T):
        logs = -values - np.logaddexp.reduce(-values)
        # ArviZ takes the negative of the log weights, here the log likelihoods themselves. Equal
        # ones have no tail.
        if count >= _FEWEST and np.isfinite(values).all() and np.ptp(values) > 1e-6:
            try:
                with np.errstate(all="ignore"):
                    smooth, tail = array_stats.psislw(values)
            except ValueError:
                # All weights of the tail are equal: there is none.
                smooth, tail = logs, -np.inf
            if np.isfinite(smooth).all():
                logs, khat[row] = np.asarray(smooth), tail
            else:
                # A tail that cannot be smoothed is the worst there is.
                khat[row] = np.inf
        elpd[row] = np.logaddexp.reduce(logs + values)
    return Loo(elpd, khat)


def rows_judged(target: Target, key: PRNGKeyArray) -> np.ndarray:
    """Places of the training rows at which predictions are judged."""
    assert target.num_data is not None
    count = min(_ROWS, target.num_data)
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
    members = loo_by_chain(logs_by_chain)
    elpd = mixed(members, shares)
    halves = [psis_loo(half.reshape(-1, len(rows))) for half in _halves(logs_by_chain)]
    change = halves[1].elpd - halves[0].elpd
    return PredictiveAudit(
        num_chains=chains,
        num_draws=chains * length,
        num_rows=len(rows),
        rhat=rhat,
        rhat_log_likelihood=rhat_likelihood,
        rhat_halves=settled,
        own_width=width,
        drift=float(np.mean(change)),
        drift_se=float(np.std(change) / np.sqrt(len(change))),
        loo=float(np.mean(elpd)),
        loo_se=float(np.std(elpd) / np.sqrt(len(elpd))),
        unsound=float(np.mean(psis_loo(logs).khat > _UNSOUND)),
        best_member=float(np.max(members.mean(axis=1))),
    )


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = max(values.shape[1] // 2, 1)
    return values[:, :middle], values[:, -middle:]


def _agreement(
    means: Float[np.ndarray, "chains draws values"],
    noise: Float[np.ndarray, " values"],
    log_likelihood: Float[np.ndarray, "chains draws"],
) -> tuple[float, float, float, float]:
    """R-hats of predictions of y, of the log likelihood, of halves; the chains' own width."""
    chains, length, _ = means.shape
    if chains < 4 or length < 4:
        return float("nan"), float("nan"), float("nan"), float("nan")
    groups = chains // 2
    rhat = float(np.quantile(nested_rhat(means, groups, noise), 0.9))
    likelihood = float(nested_rhat(log_likelihood[:, :, None], groups)[0])
    # B/W of single chains; W/(B + W) is the chains' own share.
    width = float(np.median(nested_rhat(means, chains) ** -2.0))
    return rhat, likelihood, float(np.median(halves_rhat(means))), width
