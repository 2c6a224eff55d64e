"""Programs spread over a mesh of devices, of one process or of many.

Outside of programs every array is local, as without a mesh. On its way into a program an array is
put on all devices of the mesh, and the data's rows in shares; inside, leading axes are spread
(`over`); what a program returns is on all devices again, and each process sees its own copy.
"""

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from follmer.errors import InputError, closest

# What may be spread: paths (draws, chains, particles, members of an ensemble), and rows of data.
PATHS, DATA = "paths", "data"
AXES = (PATHS, DATA)


class Placement:
    """A mesh, and the arrays that are on it already."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.num_processes = len({device.process_index for device in mesh.devices.flat})
        own = [one for one in mesh.devices.flat if one.process_index == jax.process_index()]
        self._everywhere = NamedSharding(mesh, PartitionSpec())
        self._here = NamedSharding(Mesh(np.asarray(own), ("own",)), PartitionSpec())
        # By identity, for as long as the local array lives.
        self._known: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}

    def describe(self) -> dict[str, Any]:
        """The axes and the devices, as JSON has them."""
        return {**self.mesh.shape, "devices": [one.id for one in self.mesh.devices.flat]}

    def arrived(self, tree: PyTree) -> PyTree:
        """The tree with its arrays on the mesh."""
        return jax.tree.map(lambda leaf: self._placed(leaf) if _is_array(leaf) else leaf, tree)

    def returned(self, tree: PyTree) -> PyTree:
        """The tree of a program's results, as local arrays."""
        return jax.tree.map(lambda leaf: self._local(leaf) if _is_array(leaf) else leaf, tree)

    def spread_rows(self, data: PyTree) -> None:
        """From now on the rows of these arrays are on the mesh in shares."""
        for leaf in filter(_is_array, jax.tree.leaves(data)):
            if not self._is_placed(leaf) and id(leaf) not in self._known:
                self._remember(leaf, jax.device_put(leaf, rows_sharding(self.mesh, len(leaf))))

    def _placed(self, leaf: Any) -> Any:
        if id(leaf) in self._known:
            return self._known[id(leaf)][1]
        if self._is_placed(leaf):
            given, sharding = leaf, _left_to_xla(leaf.sharding)
        else:
            given, sharding = jax.device_put(leaf, self._here), self._everywhere
        parts = [shard.data for shard in given.addressable_shards]
        placed = jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)
        self._remember(leaf, placed)
        return placed

    def _is_placed(self, leaf: Any) -> bool:
        sharding = leaf.sharding if isinstance(leaf, jax.Array) else None
        devices = self._everywhere.device_set
        return isinstance(sharding, NamedSharding) and sharding.device_set == devices

    def _local(self, leaf: jax.Array) -> jax.Array:
        if _is_key(leaf):
            return jax.random.wrap_key_data(self._local(jax.random.key_data(leaf)))
        local = leaf.addressable_data(0)
        self._remember(local, leaf)
        return local

    def _remember(self, local: Any, placed: jax.Array) -> None:
        # NumPy's arrays may change, and keys are small.
        if isinstance(local, jax.Array) and not _is_key(local):
            name = id(local)
            gone = weakref.ref(local, lambda _: self._known.pop(name, None))
            self._known[name] = (gone, placed)


# Where programs run, None without a mesh; inside of one that is being traced, its own mesh.
PLACEMENT: ContextVar[Placement | None] = ContextVar("placement", default=None)
TRACED: ContextVar[Mesh | None] = ContextVar("traced", default=None)


@contextmanager
def on_mesh(mesh: Mesh | str | None) -> Iterator[None]:
    """Run everything that is computed inside on the devices of a mesh.

    A `jax.sharding.Mesh` with the axes "paths", "data" or both, or "auto" for all devices along
    "paths". Paths, chains, particles and members of ensembles are spread along "paths", rows of
    data along "data". The arguments `mesh` of `fit`, `sample` and `predict` are short for this;
    None changes nothing.
    """
    if mesh is None:
        yield
        return
    token = PLACEMENT.set(Placement(as_mesh(mesh)))
    try:
        yield
    finally:
        PLACEMENT.reset(token)


def width(*axes: str) -> int:
    """Devices of the mesh along some axes; 1 without a mesh."""
    now = PLACEMENT.get()
    shape = {} if now is None else dict(now.mesh.shape)
    return math.prod(shape.get(axis, 1) for axis in axes)


def spread_rows(data: PyTree) -> None:
    """From now on, and until the mesh is left, programs find the rows of these arrays in shares."""
    now = PLACEMENT.get()
    if now is not None and DATA in now.mesh.axis_names:
        now.spread_rows(data)


@contextmanager
def traced_on(mesh: Mesh) -> Iterator[None]:
    """For the body of a program on a mesh."""
    token = TRACED.set(mesh)
    try:
        yield
    finally:
        TRACED.reset(token)


def over(axis: str, tree: PyTree) -> PyTree:
    """The tree with the leading axes of its arrays spread along an axis of the program's mesh.

    XLA fills up what does not divide.
    """
    mesh = TRACED.get()
    return tree if mesh is None or axis not in mesh.axis_names else _constrained(tree, mesh, axis)


def over_all(tree: PyTree) -> PyTree:
    """The tree with the leading axes of its arrays spread along all of the program's mesh."""
    mesh = TRACED.get()
    return tree if mesh is None else _constrained(tree, mesh, mesh.axis_names)


def everywhere(tree: PyTree) -> PyTree:
    """The tree with its arrays on all devices of the program's mesh."""
    mesh = TRACED.get()
    return tree if mesh is None else _constrained(tree, mesh)


def in_turns(
    function: Callable[[PyTree], PyTree], rows: PyTree, at_once: int | None = None
) -> PyTree:
    """`jax.lax.map` with so many rows at once, on a mesh by every device along "paths"."""
    mesh = TRACED.get()
    devices = 1 if mesh is None else dict(mesh.shape).get(PATHS, 1)
    count = jax.tree.leaves(rows)[0].shape[0]
    size = min((at_once or 1) * devices, count)
    if devices == 1 and (size < 2 or count % size == 0):
        return jax.lax.map(function, rows, batch_size=at_once)
    # Filled up by the last row: a remainder would be compiled by itself.
    places = np.minimum(np.arange(-(-count // size) * size), count - 1).reshape(-1, size)

    def turn(chosen: Array) -> PyTree:
        some = jax.tree.map(lambda leaf: leaf[chosen], rows)
        return jax.vmap(function)(over(PATHS, some))

    found = jax.lax.map(turn, jax.numpy.asarray(places))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], found)


def shares_of(num_rows: int) -> int:
    """Equal shares of rows, one for each device along "data" of the program's mesh; 1 if uneven."""
    mesh = TRACED.get()
    devices = 1 if mesh is None else dict(mesh.shape).get(DATA, 1)
    return devices if num_rows % devices == 0 else 1


def joined_rows(data: PyTree, mesh: Mesh) -> PyTree:
    """The arrays of all processes' rows, of which each gives its own; nothing is sent."""
    if DATA not in mesh.axis_names:
        raise InputError(
            'rows cannot be shared by a mesh without an axis "data".',
            hint='jax.make_mesh((jax.device_count(),), ("data",))',
        )
    # Processes whose devices hold the same rows all give them.
    givers = mesh.shape[DATA] // mesh.local_mesh.shape[DATA]

    def whole(leaf: Any) -> jax.Array:
        sharding = rows_sharding(mesh, givers * len(leaf))
        return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))

    return jax.tree.map(whole, data)


def rows_sharding(mesh: Mesh, num_rows: int) -> NamedSharding:
    """The rows of data in equal shares; an error where there are none."""
    devices = dict(mesh.shape).get(DATA, 1)
    if num_rows % devices:
        raise InputError(
            f"{num_rows} rows of data cannot be shared equally by {devices} devices.",
            cause='the axis "data" of the mesh does not divide their number',
            hint=f"{num_rows % devices} rows fewer, or a mesh with the axis 'paths' alone",
        )
    return NamedSharding(mesh, PartitionSpec(DATA if DATA in mesh.axis_names else None))


def as_mesh(mesh: Any) -> Mesh:
    """The mesh, whose shardings are left to XLA; an error for any other than ours."""
    if isinstance(mesh, str) and mesh == "auto":
        return Mesh(np.asarray(jax.devices()), (PATHS,))
    if not isinstance(mesh, Mesh):
        raise InputError(
            f"mesh is {mesh!r:.80}, not a mesh of devices.",
            hint='mesh="auto", or jax.make_mesh((4,), ("paths",))',
        )
    for name in mesh.axis_names:
        if name not in AXES:
            raise InputError(
                f"the mesh has an axis {name!r}.",
                cause="only paths and rows of data are spread over devices",
                hint=closest(str(name), AXES),
            )
    processes = {device.process_index for device in mesh.devices.flat}
    if processes not in ({jax.process_index()}, set(range(jax.process_count()))):
        raise InputError(
            f"the mesh has devices of the processes {sorted(processes)} of {jax.process_count()}.",
            hint='the devices of all processes, as "auto" has, or jax.local_devices() alone',
        )
    return _left_to_xla(NamedSharding(mesh, PartitionSpec())).mesh  # type: ignore[return-value]


def _left_to_xla(sharding: NamedSharding) -> NamedSharding:
    """The same sharding; meshes of jax.make_mesh ask for one of every single operation."""
    mesh = sharding.mesh
    return NamedSharding(Mesh(mesh.devices, mesh.axis_names), sharding.spec)


def _constrained(tree: PyTree, mesh: Mesh, *spec: Any) -> PyTree:
    sharding = NamedSharding(mesh, PartitionSpec(*spec))

    def one(leaf: Any) -> Any:
        spreads = _is_array(leaf) and (not spec or leaf.ndim > 0)
        return jax.lax.with_sharding_constraint(leaf, sharding) if spreads else leaf

    return jax.tree.map(one, tree)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_key(leaf: jax.Array) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
