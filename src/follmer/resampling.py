"""Choosing draws by weight."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def systematic(
    key: PRNGKeyArray, weights: Float[Array, " draws"], count: int
) -> Int[Array, " count"]:
    """Rows chosen in proportion to their weights: one uniform, even spacing, least variance."""
    points = (jnp.arange(count) + jax.random.uniform(key, (), weights.dtype)) / count
    rows = jnp.searchsorted(jnp.cumsum(weights / jnp.sum(weights)), points)
    return jnp.clip(rows, 0, weights.size - 1)
