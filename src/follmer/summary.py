"""A posterior in words: moments, diagnostics and a verdict."""

import jax
import numpy as np

from follmer.diagnostics import diagnose, pareto_smooth, verdict
from follmer.nsfs import Draws
from follmer.targets.space import Space

_MAX_ROWS = 20


def summarise(space: Space, draws: Draws, notes: tuple[str, ...]) -> str:
    """Weighted means and sds, then the diagnostics, then what to do."""
    found = diagnose(draws.log_weights)
    weights = np.exp(pareto_smooth(draws.log_weights)[0])
    judged = verdict(found)
    lines = [*_moments(space, draws, weights), ""]
    lines += [
        f"{'ELBO':<10}{found.elbo:>12.4f}   lower bound on ln Z",
        f"{'ln Z':<10}{found.log_evidence:>12.4f}   ± {found.log_evidence_se:.4f}",
        f"{'ESS':<10}{found.ess_fraction:>12.1%}   of {weights.size} draws",
        f"{'Pareto k':<10}{found.khat:>12.2f}   weights are sound below 0.7",
    ]
    lines += [f"note: {note}" for note in notes]
    lines += ["", f"Verdict: {judged.name}. {judged.advice[0].upper()}{judged.advice[1:]}."]
    return "\n".join(lines)


def _moments(space: Space, draws: Draws, weights: np.ndarray) -> list[str]:
    rows = []
    for leaf, value in zip(space.leaves, jax.tree.leaves(draws.position), strict=True):
        flat = np.asarray(value, float).reshape(weights.size, -1)
        mean = weights @ flat
        sd = np.sqrt(np.maximum(weights @ (flat - mean) ** 2, 0.0))
        for index in range(flat.shape[1]):
            place = ",".join(map(str, np.unravel_index(index, leaf.shape))) if leaf.shape else ""
            rows.append((f"{leaf.name}[{place}]" if place else leaf.name, mean[index], sd[index]))
            if len(rows) > _MAX_ROWS:
                break
    width = max(len(name) for name, _, _ in rows[:_MAX_ROWS]) + 2
    lines = [f"{'':<{width}}{'mean':>10}{'sd':>10}"]
    lines += [f"{name:<{width}}{mean:>10.4g}{sd:>10.4g}" for name, mean, sd in rows[:_MAX_ROWS]]
    total = sum(int(np.prod(leaf.shape)) for leaf in space.leaves)
    if total > _MAX_ROWS:
        lines.append(f"… and {total - _MAX_ROWS} more")
    return lines
