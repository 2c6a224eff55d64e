"""Random numbers made on the host: unlike JAX's, nothing is compiled for each new shape."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator, seeded by a key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def normals(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Float[np.ndarray, "..."]:
    """Independent draws of N(0, 1)."""
    return generator(key).standard_normal(shape).astype(dtype)
