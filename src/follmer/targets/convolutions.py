"""Convolutions of many networks at once, fast on a CPU; the user's own layers are left as they are.

`jax.vmap` over parameters turns a convolution into one with a group for each network, which XLA
computes slowly on a CPU, and so it does the gradient of max-pooling. `fast_on_cpu` wraps a
network's forward pass: its jaxpr is evaluated with plain two-dimensional convolutions and poolings
replaced by matrix products and slices that mean the same. What follows by `vmap` and `grad` are
batched products, which are fast:

- A convolution of the images themselves, which all networks share, takes their patches as one
  matrix, computed once: a single product for all networks.
- A later convolution takes strips: a product yields several neighbouring outputs of a row at once.
  That is some more arithmetic than a product for each output, in matrices of a size that processors
  are made for, of fewer copied numbers.
- Pooling whose windows do not overlap sums, or compares, slices. Where the largest values of a
  window are equal, the gradient is shared between them.

Grouped, dilated and one- or three-dimensional convolutions, overlapping windows, and whatever
stands inside a loop stay as they are. A network without convolutions is not touched.

The alternative, layers of our own to put in the place of Equinox's, would ask something of the
user. The rewrite is as fast as the same products written by hand, and serves Flax and plain
functions too.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, Float, PyTree

# Columns that a product should have at least: with fewer, the matrices are too narrow.
_COLUMNS = 128

Apply = Callable[[PyTree, Array], Array]


def fast_on_cpu(apply: Apply, parameters: PyTree, row_shape: tuple[int, ...], dtype: Any) -> Apply:
    """The same forward pass of a batch of rows, rewritten where it has convolutions."""
    if jax.default_backend() != "cpu":
        return apply
    rows = jax.ShapeDtypeStruct((2, *row_shape), dtype)
    try:
        jaxpr = jax.make_jaxpr(apply)(parameters, rows)
    except Exception:
        # What is wrong with the network is told where its outputs' shape is asked for.
        return apply
    return _Rewritten(apply) if _has_convolutions(jaxpr.jaxpr) else apply


class _Rewritten(eqx.Module):
    """A forward pass whose convolutions and poolings are replaced as it is traced."""

    apply: Apply

    def __call__(self, parameters: PyTree, x: Array) -> Array:
        closed, shapes = jax.make_jaxpr(self.apply, return_shape=True)(parameters, x)
        leaves = jax.tree.leaves(parameters)
        own = [True] * len(leaves) + [False] * len(jax.tree.leaves(x))
        values, _ = _evaluated(closed, [*leaves, *jax.tree.leaves(x)], own)
        return jax.tree.unflatten(jax.tree.structure(shapes), values)


def _evaluated(
    closed: ClosedJaxpr, arguments: Sequence[Any], own: Sequence[bool]
) -> tuple[list[Any], list[bool]]:
    """What a jaxpr returns, and which of it depends on parameters, as `own` says of arguments."""
    jaxpr = closed.jaxpr
    known: dict[Any, tuple[Any, bool]] = {}

    def read(variable: Any) -> tuple[Any, bool]:
        return (variable.val, False) if isinstance(variable, Literal) else known[variable]

    constants = zip(jaxpr.constvars, closed.consts, strict=True)
    known |= {variable: (value, False) for variable, value in constants}
    known |= dict(zip(jaxpr.invars, zip(arguments, own, strict=True), strict=True))
    for equation in jaxpr.eqns:
        inputs, marks = (
            zip(*map(read, equation.invars), strict=True) if equation.invars else ((), ())
        )
        results, found = _of_equation(jaxpr, equation, inputs, marks)
        known |= dict(zip(equation.outvars, zip(results, found, strict=True), strict=True))
    if not jaxpr.outvars:
        return [], []
    values, marks = zip(*map(read, jaxpr.outvars), strict=True)
    return list(values), list(marks)


def _of_equation(
    whole: Jaxpr, equation: Any, inputs: Sequence[Any], own: Sequence[bool]
) -> tuple[Sequence[Any], Sequence[bool]]:
    name = equation.primitive.name
    if name == "conv_general_dilated" and _is_plain_convolution(equation):
        convolve = _convolved_strips if own[0] else _convolved_patches
        images, kernel = inputs
        return [_convolution(convolve, images, kernel, equation.params)], [any(own)]
    if name in _POOLINGS and _is_plain_pooling(equation):
        found = _pooled(_POOLINGS[name], inputs[0], equation.params["window_dimensions"])
        return [found], [any(own)]
    inner = _inner(equation)
    if inner is not None:
        return _evaluated(inner, inputs, own)
    results = _as_it_is(whole, equation, inputs)
    return results, [any(own)] * len(results)


def _as_it_is(whole: Jaxpr, equation: Any, inputs: Sequence[Any]) -> list[Any]:
    """What an equation returns, as a jaxpr of its own."""
    named = {
        variable: value
        for variable, value in zip(equation.invars, inputs, strict=True)
        if not isinstance(variable, Literal)
    }
    alone = whole.replace(
        constvars=[], invars=list(named), outvars=equation.outvars, eqns=[equation]
    )
    return jaxpr_as_fun(ClosedJaxpr(alone, []))(*named.values())


def _has_convolutions(jaxpr: Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "conv_general_dilated" and _is_plain_convolution(equation):
            return True
        inner = _inner(equation)
        if inner is not None and _has_convolutions(inner.jaxpr):
            return True
    return False


def _inner(equation: Any) -> ClosedJaxpr | None:
    """The function that an equation calls once."""
    if equation.primitive.name not in ("jit", "pjit", "closed_call", "core_call"):
        return None
    found = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    return found if isinstance(found, ClosedJaxpr) else None


def _is_plain_convolution(equation: Any) -> bool:
    given = equation.params
    dilation = (*given["lhs_dilation"], *given["rhs_dilation"])
    groups = (given["feature_group_count"], given["batch_group_count"])
    inputs, outputs = equation.invars[0].aval, equation.outvars[0].aval
    return (
        len(given["window_strides"]) == 2
        and all(one == 1 for one in (*dilation, *groups))
        and jnp.issubdtype(inputs.dtype, jnp.floating)
        and 0 not in (*inputs.shape, *outputs.shape)
    )


def _convolution(
    convolve: Callable[..., Array], images: Array, kernel: Array, given: dict[str, Any]
) -> Array:
    """`convolve`, which knows one layout and no padding, for any layout and padding."""
    axes = given["dimension_numbers"]
    images, kernel = images.transpose(axes.lhs_spec), kernel.transpose(axes.rhs_spec)
    edges = [(0, 0), (0, 0), *given["padding"]]
    if any(edge != (0, 0) for edge in edges):
        zero = jnp.zeros((), images.dtype)
        images = jax.lax.pad(images, zero, [(low, high, 0) for low, high in edges])
    found = convolve(images, kernel, tuple(given["window_strides"]))
    wanted = given["preferred_element_type"]
    found = found if wanted is None else found.astype(wanted)
    return found.transpose(np.argsort(axes.out_spec))


def _convolved_patches(
    images: Float[Array, "rows ins height width"],
    kernel: Float[Array, "outs ins kernel_height kernel_width"],
    strides: tuple[int, int],
) -> Float[Array, "rows outs out_height out_width"]:
    """The convolution as one product with all patches, a column for each place of each row."""
    outs, _, *window = kernel.shape
    height, width = _out_sizes(images.shape[2:], window, strides)
    by_channel = _computed_once(images.transpose(1, 0, 2, 3))
    places = [(i, j) for i in range(window[0]) for j in range(window[1])]
    patches = jnp.stack(
        [
            by_channel[:, :, _every(i, height, strides[0]), _every(j, width, strides[1])]
            for i, j in places
        ],
        axis=1,
    )
    rows = len(images)
    found = kernel.reshape(outs, -1) @ patches.reshape(-1, rows * height * width)
    return found.reshape(outs, rows, height, width).transpose(1, 0, 2, 3)


def _convolved_strips(
    images: Float[Array, "rows ins height width"],
    kernel: Float[Array, "outs ins kernel_height kernel_width"],
    strides: tuple[int, int],
) -> Float[Array, "rows outs out_height out_width"]:
    """The convolution as products that yield `length` neighbouring outputs of a row each.

    The kernel becomes a banded matrix, from the inputs under a strip to the strip's outputs.
    """
    rows = len(images)
    outs, ins, *window = kernel.shape
    height, width = _out_sizes(images.shape[2:], window, strides)
    count = -(-width // min(width, -(-_COLUMNS // outs)))
    length = -(-width // count)
    seen = (length - 1) * strides[1] + window[1]  # columns of the images under a strip
    ends = (count * length - 1) * strides[1] + window[1]
    # The last strip may reach beyond the images.
    images = jnp.pad(images, [*3 * [(0, 0)], (0, max(ends - images.shape[3], 0))])
    images = _computed_once(images)
    starts = [strip * length * strides[1] for strip in range(count)]
    under = [
        jnp.stack([images[:, :, _every(i, height, strides[0]), one : one + seen] for one in starts])
        for i in range(window[0])
    ]  # (strips, rows, ins, out_height, seen) for each row of the window
    strips = jnp.stack(under).transpose(1, 2, 4, 3, 0, 5)
    band = jnp.stack(
        [
            jnp.pad(kernel, [*3 * [(0, 0)], (j * strides[1], seen - window[1] - j * strides[1])])
            for j in range(length)
        ],
        axis=-1,
    )
    band = _computed_once(band.transpose(1, 2, 3, 0, 4).reshape(-1, outs * length))
    found = strips.reshape(-1, ins * window[0] * seen) @ band
    found = _computed_once(found).reshape(count, rows, height, outs, length)
    return found.transpose(1, 3, 2, 0, 4).reshape(rows, outs, height, -1)[..., :width]


def _out_sizes(
    sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> tuple[int, int]:
    first, second = (
        (size - part) // stride + 1
        for size, part, stride in zip(sizes, window, strides, strict=True)
    )
    return first, second


def _every(start: int, count: int, stride: int) -> slice:
    return slice(start, start + (count - 1) * stride + 1, stride)


def _is_plain_pooling(equation: Any) -> bool:
    given, (images, *_) = equation.params, equation.invars
    windows = given["window_dimensions"]
    return (
        tuple(given["window_strides"]) == tuple(windows)
        and all(edge == (0, 0) for edge in given["padding"])
        and all(one == 1 for one in (*given["base_dilation"], *given["window_dilation"]))
        and all(size >= window for size, window in zip(images.aval.shape, windows, strict=True))
        and jnp.issubdtype(images.aval.dtype, jnp.floating)
    )


def _pooled(
    pool: Callable[[Array, int, int], Array], images: Array, windows: Sequence[int]
) -> Array:
    """Each axis pooled in turn, where the pooled axes stand last: Equinox has them in the middle,
    between transpositions that are thereby undone."""
    axes = [axis for axis, window in enumerate(windows) if window > 1]
    last = list(range(-len(axes), 0))
    images = _computed_once(jnp.moveaxis(images, axes, last))
    for axis, place in zip(axes, last, strict=True):
        images = pool(images, images.ndim + place, windows[axis])
    return jnp.moveaxis(images, last, axes)


def _sums(images: Array, axis: int, window: int) -> Array:
    """Sums over windows side by side along an axis; by a product where it is the last."""
    if axis < images.ndim - 1:
        return _in_windows(images, axis, window).sum(axis=axis + 1)
    size = images.shape[-1]
    member = np.arange(size)[:, None] // window == np.arange(size // window)
    return images @ jnp.asarray(member, images.dtype)


def _largest(images: Array, axis: int, window: int) -> Array:
    """The largest values of windows side by side along an axis."""
    count = images.shape[axis] // window
    parts = (
        jax.lax.slice_in_dim(images, i, i + (count - 1) * window + 1, window, axis)
        for i in range(window)
    )
    return functools.reduce(jnp.maximum, parts)


def _in_windows(images: Array, axis: int, window: int) -> Array:
    """The axis split into windows; what is left over at its end is left out."""
    count = images.shape[axis] // window
    kept = jax.lax.slice_in_dim(images, 0, count * window, axis=axis)
    return kept.reshape(*images.shape[:axis], count, window, *images.shape[axis + 1 :])


def _computed_once(values: Array) -> Array:
    """The same values. XLA would compute them anew in each slice that is taken of them."""
    return jax.lax.optimization_barrier(values)


_POOLINGS: dict[str, Callable[[Array, int, int], Array]] = {
    "reduce_window_sum": _sums,
    "reduce_window_max": _largest,
}
