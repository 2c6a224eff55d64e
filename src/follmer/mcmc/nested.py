"""Nested R-hat (Margossian et al. 2024, arXiv:2110.13017): whether groups of chains agree."""

import numpy as np
from jaxtyping import Float


def nested_rhat(
    values: Float[np.ndarray, "chains draws quantities"],
    num_groups: int,
    *,
    noise: Float[np.ndarray, " quantities"] | float = 0.0,
    chance_removed: bool = False,
) -> Float[np.ndarray, " quantities"]:
    """√(1 + B/W), B between groups of neighbouring chains, W inside them; 1 where B is 0.

    `noise` is variance that every draw has beside its value, as that of y around a predicted mean.
    `chance_removed` takes off B what groups of so many chains differ by where chains of a group
    differ as much as those of two groups.
    """
    num_chains, num_draws, _ = values.shape
    size = num_chains // num_groups
    grouped = values[: size * num_groups].reshape(num_groups, size, num_draws, -1)
    means = grouped.mean(axis=2)
    between = means.mean(axis=1).var(axis=0, ddof=1)
    inside = grouped.var(axis=2, ddof=1).mean(axis=(0, 1)) + noise
    if size > 1:
        of_chains = means.var(axis=1, ddof=1).mean(axis=0)
        inside = inside + of_chains
        if chance_removed:
            between = np.maximum(between - of_chains / size, 0.0)
    return rhat_of(between, inside)


def rhat_of(between: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """R-hat from variances; 1 where there is none between, as for an output that is dead."""
    with np.errstate(all="ignore"):
        return np.sqrt(1.0 + np.where(between == 0, 0.0, between / inside))
