"""Arrays that lie in memory in another order than their axes are named in.

Images of many rows are fast to compute with where the rows lie last: every slice is then made of
long runs. A `Laid` array says which axes of memory make up each axis that it is spoken of by, so
that transpositions cost nothing, and whatever acts on elements acts on memory as it is.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Laid(NamedTuple):
    """An array in memory, and for each axis of its plain form the axes of memory it consists of.

    Of several, the first is the slowest; an axis of one element may consist of none.
    """

    memory: Array
    axes: tuple[tuple[int, ...], ...]

    @property
    def last(self) -> int:
        """The axis that lies last: that of the rows."""
        return next(i for i, own in enumerate(self.axes) if self.memory.ndim - 1 in own)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the plain form."""
        return tuple(math.prod(self.memory.shape[one] for one in own) for own in self.axes)

    def plain(self) -> Array:
        """The array with its axes in the order they are named in."""
        order = [one for own in self.axes for one in own]
        return self.memory.transpose(order).reshape(self.shape)

    def with_memory(self, memory: Array) -> "Laid":
        """Other elements in the same order."""
        return Laid(memory, self.axes)


def with_last(values: Array, axis: int) -> Laid:
    """A plain array, laid with that axis last."""
    places = [one if one < axis else one - 1 for one in range(values.ndim)]
    places[axis] = values.ndim - 1
    return Laid(jnp.moveaxis(values, axis, -1), tuple((place,) for place in places))


def plain(values: Array | Laid) -> Array:
    """The plain form of an array, laid or not."""
    return values.plain() if isinstance(values, Laid) else values


def memory_like(values: Array | Laid, model: Laid) -> Array:
    """An array in the memory order of a model, whose axes are as long as the model's, or 1."""
    if isinstance(values, Laid):
        if values.axes == model.axes and values.memory.shape == model.memory.shape:
            return values.memory
        values = values.plain()
    if jnp.ndim(values) == 0:
        return values
    order = [one for own in model.axes for one in own]
    sizes = [
        1 if size == 1 else model.memory.shape[one]
        for size, own in zip(values.shape, model.axes, strict=True)
        for one in own
    ]
    return values.reshape(sizes).transpose(np.argsort(order))


def transposed(values: Laid, permutation: Sequence[int]) -> Laid:
    """The axes named in another order; nothing moves."""
    return Laid(values.memory, tuple(values.axes[axis] for axis in permutation))


def reshaped(values: Laid, shape: Sequence[int]) -> Laid | None:
    """Another shape, where rows stand first in both or only axes of one element differ."""
    if [size for size in shape if size > 1] == [size for size in values.shape if size > 1]:
        return _with_other_units(values, shape)
    if values.last != 0 or shape[0] != values.shape[0]:
        return None
    rows_last = jnp.moveaxis(values.plain(), 0, -1).reshape(*shape[1:], shape[0])
    places = range(len(shape) - 1)
    return Laid(rows_last, ((len(shape) - 1,), *((place,) for place in places)))


def _with_other_units(values: Laid, shape: Sequence[int]) -> Laid | None:
    """Axes of one element left out or put in; nothing moves."""
    named = list(zip(values.axes, values.shape, strict=True))
    left = (own for own, size in named if size > 1)
    axes = [next(left) if size > 1 else () for size in shape]
    # Memory's axes must all be named: those of one element may be said to be part of any.
    units = [one for own, size in named if size == 1 for one in own]
    if not axes:
        return None
    return Laid(values.memory, ((*units, *axes[0]), *axes[1:]))


def product(values: Laid, axis: int, matrix: Array, of_matrix: int, **options: Any) -> Laid:
    """The sum over an axis and one of a matrix; the matrix's other axis is named last."""
    rows_last = with_last(values.plain(), values.last)
    (place,) = rows_last.axes[axis]
    found = jax.lax.dot_general(
        matrix, rows_last.memory, (((of_matrix,), (place,)), ((), ())), **options
    )
    # The matrix's axis is first in memory, then those that are left.
    left = [own for i, (own,) in enumerate(rows_last.axes) if i != axis]
    return Laid(found, (*((one + (one < place),) for one in left), (0,)))


def in_windows(values: Laid, windows: Sequence[int]) -> tuple[Array, tuple[int, ...], Laid]:
    """Memory with each window on an axis of its own, these axes, and what is left over them."""
    values = _divisible(values, windows)
    fastest = {own[-1]: window for own, window in zip(values.axes, windows, strict=True) if own}
    sizes: list[int] = []
    across: list[int] = []
    for place, size in enumerate(values.memory.shape):
        window = fastest.get(place, 1)
        sizes.append(size // window)
        if window > 1:
            across.append(len(sizes))
            sizes.append(window)
    return values.memory.reshape(sizes), tuple(across), values


def _divisible(values: Laid, windows: Sequence[int]) -> Laid:
    """The same where windows divide the fastest axes, else plain, cut to whole windows."""
    sizes = [values.memory.shape[own[-1]] if own else 1 for own in values.axes]
    if all(size % window == 0 for size, window in zip(sizes, windows, strict=True)):
        return values
    found = values.plain()
    cut = tuple(
        slice(size // window * window) for size, window in zip(found.shape, windows, strict=True)
    )
    return with_last(found[cut], values.last)
