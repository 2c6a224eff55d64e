"""Pytrees of arrays as flat dictionaries, for files."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from follmer.errors import FileError


def to_arrays(tree: PyTree, prefix: str) -> dict[str, np.ndarray]:
    """The leaves of a tree, numbered under a prefix."""
    return {f"{prefix}{i}": np.asarray(_data(leaf)) for i, leaf in enumerate(jax.tree.leaves(tree))}


def from_arrays(like: PyTree, arrays: dict[str, np.ndarray], prefix: str) -> PyTree:
    """The tree of `like`'s structure, shapes and dtypes that `to_arrays` took apart."""
    leaves, treedef = jax.tree.flatten(like)
    names = [f"{prefix}{i}" for i in range(len(leaves))]
    found = [arrays.get(name) for name in names]
    extra = f"{prefix}{len(leaves)}" in arrays
    for name, leaf, value in zip(names, map(_data, leaves), found, strict=True):
        if value is None or value.shape != leaf.shape or value.dtype != leaf.dtype:
            described = "missing" if value is None else f"{value.dtype}{list(value.shape)}"
            raise FileError(
                f"the stored array {name} is {described}, not {leaf.dtype}{list(leaf.shape)}.",
                cause="the drift, target or floating precision differs from when it was stored",
            )
    if extra:
        raise FileError("the file stores more arrays than the drift has.")
    values = [
        jax.random.wrap_key_data(jnp.asarray(value)) if _is_key(leaf) else jnp.asarray(value)
        for leaf, value in zip(leaves, found, strict=True)
    ]
    return jax.tree.unflatten(treedef, values)


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _data(leaf: Array) -> Array:
    """The numbers behind a leaf, also where it is a random key."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
