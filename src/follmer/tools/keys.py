"""The one discipline for random keys: every consumer has a name.

`jax.random.fold_in(key, i)` is `jax.random.split(key, n)[i]`: a key that is both folded and split
gives the same numbers twice. Here a key is folded by names alone; what a name gives is folded
again, split, or drawn from, and only one of these.
"""

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, UInt


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key of the consumer of that name."""
    return jax.random.fold_in(key, np.uint32(zlib.crc32(name.encode())))


def named_keys(key: PRNGKeyArray, *names: str) -> tuple[PRNGKeyArray, ...]:
    """One key for each name."""
    return tuple(named_key(key, name) for name in names)


KeyRows = UInt[np.ndarray, "count words"]


def key_rows(key: PRNGKeyArray, count: int) -> KeyRows:
    """As many keys as draws are made, as raw numbers made on the host; `as_keys` wraps them."""
    shape = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape
    return generator(key, "rows").integers(2**32, size=(count, *shape), dtype=np.uint32)


def as_keys(rows: KeyRows) -> Key[Array, " count"]:
    """The keys that `key_rows` made; for use inside what is compiled."""
    return jax.random.wrap_key_data(jnp.asarray(rows))


def generator(key: PRNGKeyArray, name: str) -> np.random.Generator:
    """NumPy's generator for the consumer of that name: on the host nothing is compiled."""
    words = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return np.random.default_rng([*words, zlib.crc32(name.encode())])


def normals(
    key: PRNGKeyArray, name: str, shape: tuple[int, ...], dtype: Any = float
) -> Float[np.ndarray, "..."]:
    """Independent draws of N(0, 1), made on the host."""
    return generator(key, name).standard_normal(shape).astype(dtype)
