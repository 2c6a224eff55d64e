"""How good draws are, from their exact log weights or from how far chains agree."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from follmer.mcmc.resampling import log_mean_weight

# Below this many draws no tail can be fitted.
_MIN_DRAWS = 25
# From this effective share of draws on, weights change little.
_EVEN = 0.8
# From this share on, given the globals, a local's draws resemble its posterior.
_ALIKE = 0.5
# Nats between ln Z and its upper bound: this close is agreement, this far is missing mass.
_CLOSE, _FAR = 0.2, 2.0
# R-hat: chains agree up to here, disagree from there on (Vehtari et al. 2021, arXiv:1903.08008).
_AGREE, _DISAGREE = 1.01, 1.1
# Effective draws of Markov chains: enough to believe them, too few for any use.
_ENOUGH, _TOO_FEW = 400, 10
# Coordinates of stored chains that are looked at; all of them up to this many.
_MAX_COORDINATES = 256

# Weighted answers cannot be relied on from this Pareto tail index on.
UNSOUND_KHAT = 0.7


class Diagnostics(NamedTuple):
    """Evidence bound and estimate, and how evenly the weights spread.

    `elbo` ≤ ln Z; `log_evidence` ± `log_evidence_se` estimates ln Z; `ess_fraction` is the
    effective share of draws; `khat` the Pareto tail index of the weights (above 0.7 the weighted
    answers cannot be relied on). `eubo` ≥ ln Z is the other side of the bracket, from draws that
    MCMC moved; nan without a second opinion.
    """

    elbo: float
    log_evidence: float
    log_evidence_se: float
    ess_fraction: float
    khat: float
    eubo: float = float("nan")


class SecondOpinion(NamedTuple):
    """What a flow's draws look like after MCMC moves, which leave the posterior as it is.

    Weights show only what the flow reaches. Moves carry a too narrow sample outwards: there `eubo`,
    the mean log weight of paths to the moved draws and an upper bound on ln Z for draws of the
    target, rises, and the means shift.
    """

    eubo: float
    eubo_se: float
    mean_shift: float  # the largest move of a coordinate's mean, in standard deviations
    mean_shift_noise: float  # what chance alone makes of it
    missed_modes: int = 0  # that climbs found, that hold mass, and that no draw is near


class LocalOpinion(NamedTuple):
    """What single locals' weights say, where those of very many together say nothing.

    The weight of a draw is that of its globals times those of all its locals, whose small errors
    add up. Given the globals, one local's weights judge it alone.
    """

    ess_fraction: float  # given the globals, exceeded by 19 of 20 data points that were looked at
    num_rows: int  # data points that were looked at


Opinion = SecondOpinion | LocalOpinion


def as_opinion(fields: dict[str, Any]) -> Opinion:
    """The opinion that has these fields, as files keep them."""
    return (
        LocalOpinion(**fields)
        if fields.keys() == {*LocalOpinion._fields}
        else SecondOpinion(**fields)
    )


class ChainDiagnostics(NamedTuple):
    """How far stored Markov chains agree and how much their draws repeat each other.

    `rhat` and `ess_fraction` are those of the worst coordinate (rank-normalised R-hat; bulk ESS as
    a share of `num_draws`, the draws of all chains); nan where there is one chain, or too few
    draws. `exact` says whether the chains' kernel leaves the target as it is; `divergences` counts
    trajectories that a Hamiltonian kernel could not follow. Chains know nothing of the evidence.
    """

    num_chains: int
    num_draws: int
    rhat: float
    ess_fraction: float
    exact: bool
    divergences: int = 0


def diagnose(log_weights: ArrayLike, second: Opinion | None = None) -> Diagnostics:
    """All diagnostics of a sample's log weights, with a second opinion where there is one."""
    log_weights = np.asarray(log_weights, float)
    count = log_weights.size
    ess = ess_fraction(log_weights)
    # Weights that are not finite are judged, not warned of.
    with np.errstate(invalid="ignore"):
        elbo = float(log_weights.mean())
    return Diagnostics(
        elbo=elbo,
        log_evidence=log_mean_weight(log_weights),
        # Delta method: var(w)/mean(w)² = 1/ess − 1.
        log_evidence_se=float(np.sqrt(max(1.0 / ess - 1.0, 0.0) / max(count - 1, 1))),
        ess_fraction=ess,
        khat=pareto_smooth(log_weights)[1],
        eubo=second.eubo if isinstance(second, SecondOpinion) else float("nan"),
    )


def diagnose_chains(
    draws: Float[np.ndarray, "chains draws dim"], *, exact: bool, divergences: int = 0
) -> ChainDiagnostics:
    """R-hat and bulk ESS (ArviZ) of the worst of up to 256 evenly spaced coordinates."""
    from arviz_stats.base import array_stats

    num_chains, length, dim = draws.shape
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, _MAX_COORDINATES)).astype(int))
    values = np.asarray(draws[:, :, chosen], float)
    rhat, ess = float("nan"), float("nan")
    # Fewer draws cannot be split into two chains of two.
    if length >= 4:
        # Chains that never moved divide by zero; the result says so.
        with np.errstate(all="ignore"):
            ess = float(np.min(array_stats.ess(values, chain_axis=0, draw_axis=1)))
            if num_chains > 1:
                rhat = float(np.max(array_stats.rhat(values, chain_axis=0, draw_axis=1)))
    total = num_chains * length
    return ChainDiagnostics(num_chains, total, rhat, ess / total, exact, divergences)


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
    # Weights that are equal up to rounding have no tail to fit.
    if np.ptp(log_weights[np.isfinite(log_weights)]) < 1e-4:
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


class Verdict(NamedTuple):
    """What a user should do with the draws, in words."""

    name: str  # "trustworthy", "use the weights", "no proof of quality" or "do not use"
    advice: str


def verdict(found: Diagnostics | ChainDiagnostics, second: Opinion | None = None) -> Verdict:
    """A plain reading of the diagnostics."""
    if isinstance(found, ChainDiagnostics):
        return _verdict_on_chains(found)
    if not np.isfinite([found.elbo, found.log_evidence, found.ess_fraction]).all():
        return Verdict("do not use", "some weights are not finite: run target.check(key=…)")
    if np.isnan(found.khat):
        return Verdict("do not use", "there are too few draws to judge: raise num_samples")
    unsound = found.khat >= UNSOUND_KHAT or found.ess_fraction < 0.02
    if isinstance(second, LocalOpinion):
        if unsound and second.ess_fraction >= _ALIKE:
            return Verdict(
                "no proof of quality",
                "given the globals, single locals resemble their posterior by their own weights; "
                "those of all locals together are too many small errors to judge the globals by: "
                "compare with a fit of fewer data points",
            )
        second = None
    if unsound:
        return Verdict(
            "do not use",
            "the process has not reached the posterior: train longer (num_iterations=), use more "
            "steps (num_steps=), or precondition='explore'",
        )
    if second is not None and second.missed_modes:
        return Verdict(
            "do not use",
            f"climbs found modes that no draw visits ({second.missed_modes}): "
            "precondition='explore', or 'auto'",
        )
    if second is not None and _mass_is_missing(found, second):
        return Verdict(
            "do not use",
            "MCMC moves lead the draws to places that the process hardly reaches: train longer "
            "(num_iterations=) or precondition='explore'",
        )
    even = found.ess_fraction >= _EVEN and found.log_evidence - found.elbo <= 0.1
    if even and second is not None and second.eubo - found.log_evidence <= _CLOSE:
        return Verdict(
            "trustworthy", "the draws can be used as they are; the weights change little"
        )
    if even and second is None:
        return Verdict(
            "use the weights",
            "the weights are even, but alone they cannot show what no path reaches: fit with "
            "audit=True for a second opinion",
        )
    return Verdict(
        "use the weights",
        "plain draws are biased, weighted ones are sound: use expectation() and resample(), or "
        "train longer for plain draws",
    )


def _mass_is_missing(found: Diagnostics, second: SecondOpinion) -> bool:
    gap = second.eubo - found.log_evidence
    beyond_noise = gap > 2.0 * second.eubo_se
    shifted = second.mean_shift > 4.0 * second.mean_shift_noise
    return not np.isfinite(gap) or (gap > _FAR and beyond_noise) or shifted


def _verdict_on_chains(found: ChainDiagnostics) -> Verdict:
    if found.num_draws == 1:
        return Verdict(
            "no proof of quality",
            "one point tells nothing of the posterior's width: follmer.fit for draws with weights",
        )
    longer = "run longer (num_iterations= or num_samples=)"
    if found.num_chains > 1 and not found.rhat < _DISAGREE:
        return Verdict("do not use", f"the chains disagree: {longer}, with more burn-in")
    effective = found.ess_fraction * found.num_draws
    if not effective >= _TOO_FEW:
        return Verdict("do not use", f"the draws repeat each other: {longer}, or with larger steps")
    if not found.exact:
        return Verdict(
            "no proof of quality",
            "the steps are not corrected, and no diagnostic shows their bias: see whether the "
            "moments stay with a smaller step_size; follmer.fit for draws with weights",
        )
    if found.num_chains == 1:
        return Verdict("no proof of quality", "one chain has none to agree with: num_chains=4")
    if found.divergences:
        return Verdict(
            "no proof of quality",
            f"{found.divergences} trajectories diverged, so parts of the posterior may be missing: "
            "other coordinates, or a higher target_acceptance",
        )
    if found.rhat > _AGREE or effective < _ENOUGH:
        return Verdict("no proof of quality", f"the chains nearly agree: {longer}")
    return Verdict("trustworthy", "the chains agree with each other, in what they have found")
