"""Choosing draws by weight, and what weighted draws say; on the host."""

import numpy as np
from jaxtyping import Float, Int

_BISECTIONS = 30


def systematic(
    rng: np.random.Generator, weights: Float[np.ndarray, " draws"], count: int
) -> Int[np.ndarray, " count"]:
    """Rows chosen in proportion to their weights: one uniform, even spacing, least variance."""
    points = (np.arange(count) + rng.uniform()) / count
    rows = np.searchsorted(np.cumsum(weights / np.sum(weights)), points)
    return np.clip(rows, 0, weights.size - 1)


def evenly(rng: np.random.Generator, total: int, count: int) -> Int[np.ndarray, " count"]:
    """Evenly spaced rows of `total`, in rising order: each is chosen count/total times on average.

    In whole numbers, so that no row is chosen twice before every other is chosen once.
    """
    shift = int(rng.integers(total))
    return (np.arange(count, dtype=np.int64) * total + shift) // count


def largest_power(log_weights: Float[np.ndarray, " draws"], room: float, effective: float) -> float:
    """The largest power up to `room` of the weights that leaves this share of draws effective."""
    logs = log_weights - log_weights.max()

    def share(power: float) -> float:
        weights = np.exp(power * logs)
        return float(weights.sum() ** 2 / np.sum(weights**2) / weights.size)

    if share(room) >= effective:
        return room
    # Where weights are very uneven the power can be tiny: bisect on a logarithmic scale.
    low, high = np.log(room) - 35.0, np.log(room)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(np.exp(middle)) >= effective else (low, middle)
    return float(np.exp(low))
