"""A posterior in words: moments, diagnostics and a verdict."""

import numpy as np

from follmer.judging import (
    AnyAudit,
    Audit,
    ChainDiagnostics,
    Diagnostics,
    Judgement,
    LocalAudit,
    PredictiveAudit,
    pareto_smooth,
)
from follmer.judging.weights import moments, scalars
from follmer.nsfs import Draws
from follmer.targets.space import named_leaves

_MAX_ROWS = 20
# Pareto indices of draws from which a mean, and a standard deviation, may not exist: they do up to
# 1 and ½ (Vehtari et al. 2024, arXiv:1507.02646), and the estimate has an error of about .1.
_TAILS = (0.9, 0.6)
# Draws from which a tail can be fitted.
_FEWEST = 1000


def summarise(
    draws: Draws,
    found: Diagnostics | ChainDiagnostics,
    judged: Judgement,
    fresh: Judgement,
    notes: tuple[str, ...],
    audit: AnyAudit | None,
) -> str:
    """Moments, then the diagnostics, then what to do.

    `judged` is what stands, `fresh` what these draws alone would be judged.
    """
    weights = np.exp(pareto_smooth(draws.log_weights)[0])
    is_weighted = isinstance(found, Diagnostics)
    lines = [*_moments(draws, weights, is_weighted), ""]
    if isinstance(found, ChainDiagnostics):
        lines += _of_chains(found)
    else:
        lines += _of_weights(found, audit, weights.size)
    lines += [f"note: {note}" for note in notes]
    if isinstance(audit, Audit) and audit.rests_on:
        lines += [f"rests on: {audit.rests_on}"]
    if fresh.verdict is not judged.verdict:
        lines += [f"looked at again: these {weights.size} draws alone would be “{fresh.name}”"]
    return _ended(lines, judged)


def summarise_predictions(audit: PredictiveAudit, judged: Judgement, notes: tuple[str, ...]) -> str:
    """How a network predicts; its weights, which mean nothing one by one, are left out."""
    return _ended([*_of_predictions(audit), *(f"note: {note}" for note in notes)], judged)


def _ended(lines: list[str], judged: Judgement) -> str:
    verdict = f"Verdict: {judged.name}. {judged.advice[0].upper()}{judged.advice[1:]}."
    return "\n".join([*lines, "", verdict])


def _of_weights(found: Diagnostics, audit: AnyAudit | None, count: int) -> list[str]:
    return [
        f"{'ELBO':<10}{found.elbo:>12.4f}   lower bound on ln Z",
        f"{'ln Z':<10}{found.log_evidence:>12.4f}   ± {found.log_evidence_se:.4f}",
        *_of_audit(audit),
        f"{'ESS':<10}{found.ess_fraction:>12.1%}   of {count} draws",
        f"{'Pareto k':<10}{found.khat:>12.2f}   weights are sound below 0.7",
    ]


def _of_predictions(audit: PredictiveAudit) -> list[str]:
    chains, draws = audit.num_chains, audit.num_draws
    likelihood = f"log likelihood {audit.rhat_log_likelihood:.2f}"
    return [
        f"{'members':<10}{chains:>12}   {draws} draws looked at, at {audit.num_rows} training rows",
        f"{'R-hat':<10}{audit.rhat:>12.3f}   of predictions, agree below 1.1; {likelihood}",
        f"{'halves':<10}{audit.rhat_halves:>12.3f}   ± {audit.rhat_halves_se:.3f} R-hat of halves, "
        "settled below 1.2",
        f"{'width':<10}{audit.own_width:>12.0%}   of the predictions' variance is inside chains",
        f"{'LOO':<10}{audit.loo:>12.4f}   ± {audit.loo_se:.4f} log predictive density of a row",
        f"{'drift':<10}{audit.drift:>12.4f}   ± {audit.drift_se:.4f} of LOO along the chains",
        f"{'no x':<10}{audit.without_x:>12.4f}   log density of a row of y without x",
        f"{'sharpness':<10}{audit.sharpness:>12.2f}   of predictions, by rows left out",
        f"{'k > 0.7':<10}{audit.unsound:>12.1%}   of rows decide their own prediction",
    ]


def _of_chains(found: ChainDiagnostics) -> list[str]:
    if found.num_draws == 1:
        return [f"{'draws':<10}{1:>12}   a point estimate"]
    meaning = "chains agree below 1.01" if found.num_chains > 1 else "needs several chains"
    return [
        f"{'chains':<10}{found.num_chains:>12}   no weights, no evidence",
        f"{'R-hat':<10}{found.rhat:>12.3f}   {meaning}",
        f"{'ESS':<10}{found.ess_fraction:>12.1%}   of {found.num_draws} draws",
    ]


def _of_audit(audit: AnyAudit | None) -> list[str]:
    if audit is None or isinstance(audit, PredictiveAudit):
        return []
    if isinstance(audit, LocalAudit):
        share, rows = audit.ess_fraction, audit.num_rows
        return [f"{'local ESS':<10}{share:>12.1%}   or more for 19 in 20 of {rows} locals alone"]
    return [f"{'EUBO':<10}{audit.eubo:>12.4f}   upper bound on ln Z, from draws of Markov chains"]


def _moments(draws: Draws, weights: np.ndarray, is_weighted: bool) -> list[str]:
    """A row for each scalar: by the weights, and by plain draws beside; none where none exist."""
    names, values = scalars(draws.position)
    shown = min(len(names), _MAX_ROWS)
    width = max(map(len, names[:shown])) + 2
    even = np.full(weights.size, 1.0 / weights.size)
    columns = [("weighted", weights), ("plain", even)] if is_weighted else [("", even)]
    titles = [f"{kind} {what}".strip() for kind, _ in columns for what in ("mean", "sd")]
    lines = [" " * width + "".join(f"{title:>15}" for title in titles)]
    found = [moments(values[:, :shown], one) for _, one in columns]
    tails = [_tail_index(values[:, i]) for i in range(shown)]
    for i, (name, tail) in enumerate(zip(names[:shown], tails, strict=True)):
        pairs = [(mean[i], sd[i]) for mean, sd in found]
        cells = [
            _cell(value, tail, limit)
            for pair in pairs
            for value, limit in zip(pair, _TAILS, strict=True)
        ]
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>15}" for cell in cells))
    total = sum(int(np.prod(value.shape[1:])) for _, value in named_leaves(draws.position))
    if total > _MAX_ROWS:
        lines.append(f"… and {total - _MAX_ROWS} more")
    if any(tail > _TAILS[1] for tail in tails):
        lines.append("none: the tails of the draws are so heavy that this moment may not exist")
    return lines


def _cell(value: float, tail: float, limit: float) -> str:
    return "none" if tail > limit else f"{value:.4g}"


def _tail_index(values: np.ndarray) -> float:
    """The Pareto index of the draws themselves, the heavier of both tails."""
    centred = values - np.median(values)
    if len(values) < _FEWEST or not np.isfinite(centred).all() or np.ptp(centred) == 0:
        return float("-inf")
    from arviz_stats.base import array_stats

    with np.errstate(all="ignore"):
        return float(np.nan_to_num(array_stats.pareto_khat(centred[None]), nan=-np.inf).max())
