"""Choosing draws by weight."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


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
