"""Choosing draws by weight, and what weighted draws say."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

_BISECTIONS = 30


def systematic(
    key: PRNGKeyArray, weights: Float[Array, " draws"], count: int
) -> Int[Array, " count"]:
    """Rows chosen in proportion to their weights: one uniform, even spacing, least variance."""
    points = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    rows = jnp.searchsorted(jnp.cumsum(weights / jnp.sum(weights)), points)
    return jnp.clip(rows, 0, weights.size - 1)


def evenly(key: PRNGKeyArray, total: int, count: int) -> Int[np.ndarray, " count"]:
    """Evenly spaced rows of `total`, in rising order: each is chosen count/total times on average.

    In whole numbers, so that no row is chosen twice before every other is chosen once.
    """
    shift = int(jax.random.randint(key, (), 0, total))
    return (np.arange(count, dtype=np.int64) * total + shift) // count


def largest_power(
    log_weights: Float[Array, " draws"], room: Array | float, effective: float
) -> Float[Array, ""]:
    """The largest power up to `room` of the weights that leaves this share of draws effective."""

    def share(power: Array) -> Array:
        weights = jax.nn.softmax(power * log_weights)
        return 1.0 / jnp.sum(weights**2) / len(log_weights)

    # Where weights are very uneven the power can be tiny: bisect on a logarithmic scale.
    room = jnp.asarray(room, log_weights.dtype)
    low, high = jnp.log(room) - 35.0, jnp.log(room)

    def bisect(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = share(jnp.exp(middle)) >= effective
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, _BISECTIONS, bisect, (low, high))
    return jnp.where(share(room) >= effective, room, jnp.exp(low))


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
