"""Data points as a sampler of structured targets sees them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.targets.local import Frame


class Tangent(NamedTuple):
    """What data points say of the globals to first order: ln p(x_i|Φ) ≈ value + slope·(Φ − Φ̂)."""

    value: Float[Array, "*rows"]
    slope: Float[Array, "*rows global"]

    def __call__(self, shift: Float[Array, " global"]) -> Float[Array, "*rows"]:
        return self.value + self.slope @ shift


class Rows(NamedTuple):
    """Data points as the sampler sees them: the data, their features, where their locals lie."""

    data: PyTree
    features: Float[Array, "rows features"]
    frames: Frame | None = None
    tangents: Tangent | None = None


def num_rows(rows: Rows) -> int:
    return rows.features.shape[0]


def flat_rows(data: PyTree, dtype: Any) -> Float[Array, "rows features"]:
    """Every row's numbers in one vector."""
    leaves = jax.tree.leaves(data)
    return jnp.concatenate([leaf.reshape(len(leaf), -1).astype(dtype) for leaf in leaves], axis=1)


def standardisation(data: PyTree, dtype: Any) -> tuple[Array, Array]:
    """Mean and spread of the data's columns; constant columns are left at their mean."""
    table = np.asarray(flat_rows(data, dtype), float)
    spread = table.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return jnp.asarray(table.mean(axis=0), dtype), jnp.asarray(spread, dtype)
