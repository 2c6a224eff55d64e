"""Observed data: a pytree of arrays with a common leading axis."""

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.space import leaf_name
from follmer.tools.checks import positive_int
from follmer.tools.mesh import DATA, as_mesh, joined_rows, on_mesh, over, shares_of
from follmer.tools.processes import in_agreement, total_of_all
from follmer.tools.progress import Bar

# Rows whose bytes are hashed at once: a bound on memory.
_ROWS_HASHED = 4096


def as_data(data: PyTree) -> tuple[PyTree, int]:
    """The data as device arrays, and the number of data points."""
    if not jax.tree.leaves(data):
        raise InputError(
            "`data` holds no arrays.", hint="data=x, data=(x, y) or data={'x': x, 'y': y}"
        )
    sizes: dict[str, int] = {}
    for name, value in named_arrays(data):
        sizes[name] = _leading_axis(name, value)
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise InputError(
            f"the arrays of `data` have unequal leading axes ({listing}).",
            cause="an array is transposed, or rows were dropped from one array only",
            hint="give every array one row per data point",
        )
    num_data = next(iter(sizes.values()))
    if num_data == 0:
        raise InputError(
            "`data` is empty: its leading axis has length 0.",
            cause="a filter or split left no rows",
            hint="log_density= alone if there is no data to condition on",
        )
    return jax.tree.map(jnp.asarray, data), num_data


def _leading_axis(name: str, value: Any) -> int:
    if not hasattr(value, "shape"):
        raise InputError(
            f"{name} in `data` is {type(value).__name__}, not an array.", hint="numpy.asarray"
        )
    if not (jnp.issubdtype(value.dtype, jnp.number) or value.dtype == bool):
        raise InputError(
            f"{name} in `data` has dtype {value.dtype}; only numbers can be computed with.",
            hint="integer codes for categories",
        )
    if value.shape == ():
        raise InputError(
            f"{name} in `data` is a scalar; every array needs one row per data point.",
            cause="a constant was put among the data",
            hint="close over the constant in log_likelihood instead",
        )
    return int(value.shape[0])


def check_rows_alike(old: PyTree, new: PyTree) -> None:
    """An error unless the rows of both data have the same arrays, shapes and types."""
    wanted, found = row_shapes(old), row_shapes(new)
    if wanted == found:
        wanted, found = (str(jax.tree.structure(data)) for data in (old, new))
    if wanted != found:
        raise InputError(
            f"the new rows are {found}; those of the target are {wanted}.",
            cause="columns are missing, added, of another type or in another tree than in `data`",
            hint="the same arrays as `data`, each with one row per new data point",
        )


def row_shapes(data: PyTree) -> str:
    """What one row of the data looks like, in words."""
    return ", ".join(
        f"{name}: {leaf.dtype}{list(leaf.shape[1:])}" for name, leaf in named_arrays(data)
    )


def named_arrays(data: PyTree) -> list[tuple[str, Any]]:
    """Every array of the data with its name; `data` for a bare one."""
    paths = jax.tree_util.tree_flatten_with_path(data)[0]
    return [(leaf_name(path) if path else "data", leaf) for path, leaf in paths]


def joined_data(data: PyTree, mesh: Any) -> PyTree:
    """The rows of all processes, of which each gives its own; an error unless they look alike."""
    with on_mesh(mesh), in_agreement(True) as told:
        told["rows"] = [row_shapes(data), jax.tree.leaves(data)[0].shape[0]]
    return joined_rows(data, as_mesh(mesh))


def data_digest(data: PyTree) -> str:
    """A fingerprint of the data's numbers, kept in saved files.

    The same whether the rows are in one place or in the shares of several processes.
    """
    digest = hashlib.sha256()
    for leaf in filter(_is_array, jax.tree.leaves(data)):
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        digest.update(f"{array.dtype}{list(array.shape)}{_sum_of_rows(array):x}".encode())
    return digest.hexdigest()


def _sum_of_rows(array: Any) -> int:
    """A sum over rows of numbers made of their bytes and places, so that it can be shared."""
    whole = not isinstance(array, jax.Array) or array.is_fully_addressable
    if whole:
        return _sum_of_hashes(np.asarray(array), 0)
    own = 0
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            first = shard.index[0].start if shard.index else 0
            own += _sum_of_hashes(np.asarray(shard.data), first or 0)
    return total_of_all(own % 2**64, 2**64)


def _sum_of_hashes(rows: np.ndarray, first: int) -> int:
    rows = np.atleast_1d(rows)
    if rows.size == 0:
        return 0
    rows = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    total = 0
    for start in range(0, len(rows), _ROWS_HASHED):
        some = rows[start : start + _ROWS_HASHED].astype(np.uint64)
        # Multilinear hashing modulo 2^64, then a mixture with the row's place.
        found = some @ (2 * _mixed(np.arange(some.shape[1], dtype=np.uint64)) + 1)
        places = np.arange(first + start, first + start + len(some), dtype=np.uint64)
        total += int(_mixed(found + _mixed(places)).sum())
    return total % 2**64


def _mixed(words: np.ndarray) -> np.ndarray:
    """The words scrambled one by one (splitmix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _is_array(leaf: Any) -> bool:
    """Whether a leaf holds numbers; a model's arguments may be anything."""
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int)


def take(data: PyTree, indices: Int[Array | np.ndarray, " batch"]) -> PyTree:
    """The rows of the data at the given indices."""
    return jax.tree.map(lambda array: array[indices], data)


def random_batch(
    key: PRNGKeyArray, data: PyTree, num_data: int | None, batch_size: int | None
) -> PyTree:
    """Rows drawn uniformly with replacement: unbiased, and free of any O(num_data) shuffle.

    All the data, in order, where the batch is to be as large or no size is given.
    """
    if batch_size is None or num_data is None or batch_size == num_data:
        return data
    return over(DATA, take(data, jax.random.randint(key, (batch_size,), 0, num_data)))


def checked_batch_size(batch_size: Any, num_data: int | None) -> int | None:
    """A number of rows that the data have; None for all."""
    if batch_size is None:
        return None
    size = positive_int("batch_size", batch_size)
    if num_data is None:
        raise InputError(
            "batch_size was given, but the target has no data.",
            cause="the target was built from a log density",
            hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
        )
    if size > num_data:
        raise InputError(
            f"batch_size={size} exceeds the {num_data} data points.",
            hint="batch_size=None to use all of them",
        )
    return size


def sum_over_rows(
    function: Callable[[PyTree], Float[Array, " rows"]], data: PyTree, rows_at_once: int
) -> Float[Array, ""]:
    """Σ function(rows), in the memory of `rows_at_once` rows a device, gradients included."""
    num_rows = jax.tree.leaves(data)[0].shape[0]
    shares = shares_of(num_rows)
    if num_rows <= shares * rows_at_once:
        return jnp.sum(function(data))
    # Each device goes through its own rows.
    num_rows = num_rows // shares
    by_share = jax.tree.map(lambda a: a.reshape(shares, num_rows, *a.shape[1:]), data)
    by_share = over(DATA, by_share)

    def total(start: Int[Array, ""], size: int) -> Float[Array, ""]:
        def rows(a: Array) -> Array:
            some = jax.lax.dynamic_slice_in_dim(a, start, size, axis=1)
            return some.reshape(-1, *a.shape[2:])

        return jnp.sum(function(over(DATA, jax.tree.map(rows, by_share))))

    # Backwards each chunk is computed anew: kept results would be those of all rows.
    total = jax.checkpoint(total, static_argnums=1)
    remainder = num_rows % rows_at_once or rows_at_once
    starts = jnp.arange(remainder, num_rows, rows_at_once)
    return jax.lax.scan(
        lambda value, start: (value + total(start, rows_at_once), None),
        total(jnp.zeros_like(starts[0]), remainder),
        starts,
    )[0]


def in_chunks(
    function: Callable[[PyTree], PyTree],
    data: PyTree,
    rows_at_once: int,
    words: str,
    *,
    progress: bool = True,
) -> PyTree:
    """function(rows) for all rows, so many at a time; compiled once, with a bar where it takes."""
    num_rows = jax.tree.leaves(data)[0].shape[0]
    size = min(rows_at_once, num_rows)
    parts = []
    with Bar(num_rows, visible=progress, name=words, unit="row", late=True) as bar:
        for start in range(0, num_rows, size):
            # The last rows may be computed twice, so that all chunks have one size.
            first = min(start, num_rows - size)
            part = function(jax.tree.map(lambda array, i=first: array[i : i + size], data))
            kept = jax.tree.map(lambda array, i=start - first: np.asarray(array)[i:], part)
            parts.append(kept)
            bar.advance(min(size, num_rows - start))
    return jax.tree.map(lambda *pieces: jnp.concatenate(pieces), *parts)


def first_place(bad: np.ndarray) -> str:
    """`row 3, column 1`: the first place where an array of truths is true."""
    row, *columns = (int(index) for index in np.argwhere(bad)[0])
    return f"row {row}" + (f", column {', '.join(map(str, columns))}" if columns else "")
