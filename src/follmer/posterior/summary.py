"""A posterior in words: moments, diagnostics and a verdict."""

import numpy as np

from follmer.judging import (
    AnyAudit,
    ChainDiagnostics,
    Diagnostics,
    Judgement,
    LocalAudit,
    pareto_smooth,
)
from follmer.nsfs import Draws
from follmer.targets.space import named_leaves

_MAX_ROWS = 20


def summarise(
    draws: Draws,
    found: Diagnostics | ChainDiagnostics,
    judged: Judgement,
    notes: tuple[str, ...],
    audit: AnyAudit | None,
) -> str:
    """Weighted means and sds, then the diagnostics, then what to do."""
    weights = np.exp(pareto_smooth(draws.log_weights)[0])
    lines = [*_moments(draws, weights), ""]
    if isinstance(found, ChainDiagnostics):
        lines += _of_chains(found)
    else:
        lines += _of_weights(found, audit, weights.size)
    lines += [f"note: {note}" for note in notes]
    lines += ["", f"Verdict: {judged.name}. {judged.advice[0].upper()}{judged.advice[1:]}."]
    return "\n".join(lines)


def _of_weights(found: Diagnostics, audit: AnyAudit | None, count: int) -> list[str]:
    return [
        f"{'ELBO':<10}{found.elbo:>12.4f}   lower bound on ln Z",
        f"{'ln Z':<10}{found.log_evidence:>12.4f}   ± {found.log_evidence_se:.4f}",
        *_of_audit(audit),
        f"{'ESS':<10}{found.ess_fraction:>12.1%}   of {count} draws",
        f"{'Pareto k':<10}{found.khat:>12.2f}   weights are sound below 0.7",
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
    if audit is None:
        return []
    if isinstance(audit, LocalAudit):
        share, rows = audit.ess_fraction, audit.num_rows
        return [f"{'local ESS':<10}{share:>12.1%}   or more for 19 in 20 of {rows} locals alone"]
    return [f"{'EUBO':<10}{audit.eubo:>12.4f}   upper bound on ln Z, from draws of Markov chains"]


def _moments(draws: Draws, weights: np.ndarray) -> list[str]:
    rows = []
    leaves = named_leaves(draws.position)
    for leaf, value in leaves:
        shape = value.shape[1:]
        flat = np.asarray(value, float).reshape(weights.size, -1)
        mean = weights @ flat
        sd = np.sqrt(np.maximum(weights @ (flat - mean) ** 2, 0.0))
        for index in range(flat.shape[1]):
            place = ",".join(map(str, np.unravel_index(index, shape))) if shape else ""
            rows.append((f"{leaf}[{place}]" if place else leaf, mean[index], sd[index]))
            if len(rows) > _MAX_ROWS:
                break
    width = max(len(name) for name, _, _ in rows[:_MAX_ROWS]) + 2
    lines = [f"{'':<{width}}{'mean':>10}{'sd':>10}"]
    lines += [f"{name:<{width}}{mean:>10.4g}{sd:>10.4g}" for name, mean, sd in rows[:_MAX_ROWS]]
    total = sum(int(np.prod(value.shape[1:])) for _, value in leaves)
    if total > _MAX_ROWS:
        lines.append(f"… and {total - _MAX_ROWS} more")
    return lines
