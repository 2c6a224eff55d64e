"""Convolutions of many networks at once, fast on a CPU; the user's own layers are left as they are.

`jax.vmap` over parameters turns a convolution into one with a group for each network, which XLA
computes slowly on a CPU, and so it does the gradient of max-pooling. `fast_on_cpu` wraps a
network's forward pass: its jaxpr is evaluated with plain two-dimensional convolutions and poolings
replaced by products and sums that mean the same (`image_products`), and what lies between them is
computed with the rows last (`laid_out`). What follows by `vmap` and `grad` are batched products,
which are fast; patches of the images themselves, which all networks share, are made once.

Grouped, dilated and one- or three-dimensional convolutions, overlapping windows, and whatever
stands inside a loop stay as they are. A network without convolutions is not touched.

The alternative, layers of our own to put in the place of Equinox's, would ask something of the
user. The rewrite is as fast as the same products written by hand, and serves Flax and plain
functions too.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, PyTree

from follmer.targets.image_products import convolved, window_maxima, window_sums
from follmer.targets.laid_out import (
    Laid,
    memory_like,
    plain,
    product,
    reshaped,
    transposed,
    with_last,
)

Apply = Callable[[PyTree, Array], Array]
Value = Array | Laid


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
        values = _evaluated(closed, [*jax.tree.leaves(parameters), *jax.tree.leaves(x)])
        return jax.tree.unflatten(jax.tree.structure(shapes), map(plain, values))


def _evaluated(closed: ClosedJaxpr, arguments: Sequence[Value]) -> list[Value]:
    """What a jaxpr returns."""
    jaxpr = closed.jaxpr
    known: dict[Any, Value] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Value:
        return variable.val if isinstance(variable, Literal) else known[variable]

    for equation in jaxpr.eqns:
        results = _of_equation(jaxpr, equation, [read(one) for one in equation.invars])
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(one) for one in jaxpr.outvars]


def _of_equation(whole: Jaxpr, equation: Any, inputs: Sequence[Value]) -> Sequence[Value]:
    name = equation.primitive.name
    if name == "conv_general_dilated" and _is_plain_convolution(equation):
        return [_convolution(inputs[0], inputs[1], equation.params)]
    if name in _POOLINGS and _is_plain_pooling(equation):
        images = inputs[0] if isinstance(inputs[0], Laid) else with_last(inputs[0], 0)
        return [_POOLINGS[name](images, equation.params["window_dimensions"])]
    inner = _inner(equation)
    if inner is not None:
        return _evaluated(inner, inputs)
    if any(isinstance(one, Laid) for one in inputs):
        found = _kept_laid(whole, equation, inputs)
        if found is not None:
            return [found]
    return _as_it_is(whole, equation, [plain(one) for one in inputs])


def _kept_laid(whole: Jaxpr, equation: Any, inputs: Sequence[Value]) -> Laid | None:
    """What an equation returns, laid as its input is; None where it must be in plain order."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    model = next(one for one in inputs if isinstance(one, Laid))
    if name == "transpose":
        return transposed(model, equation.params["permutation"])
    if name in ("reshape", "squeeze", "broadcast_in_dim", "expand_dims"):
        return reshaped(model, shape)
    if name == "dot_general":
        return _product(equation, inputs)
    if model.shape != shape:
        return None
    if name in _ELEMENTWISE:
        memories = [memory_like(one, model) for one in inputs]
        return model.with_memory(equation.primitive.bind(*memories, **equation.params))
    if name == "custom_jvp_call" and _is_elementwise(equation):
        # Its jaxpr knows one shape only.
        (found,) = _as_it_is(whole, equation, [plain(one) for one in inputs])
        return model.with_memory(memory_like(found, model))
    return None


def _product(equation: Any, inputs: Sequence[Value]) -> Laid | None:
    """A product of a laid array and a plain matrix; None where it is another."""
    given = dict(equation.params)
    (first, second), batch = given.pop("dimension_numbers")
    laid, matrix = (0, 1) if isinstance(inputs[0], Laid) else (1, 0)
    values, factor = inputs[laid], inputs[matrix]
    if not isinstance(values, Laid) or isinstance(factor, Laid):
        return None
    if factor.ndim != 2 or len(first) != 1 or any(batch):
        return None
    axis, of_matrix = (first[0], second[0]) if laid == 0 else (second[0], first[0])
    if axis == values.last:
        return None
    found = product(values, axis, factor, of_matrix, **given)
    count = len(found.axes)
    return found if laid == 0 else transposed(found, (count - 1, *range(count - 1)))


def _is_elementwise(equation: Any) -> bool:
    """Whether an equation returns one array, computed element by element."""
    inner = equation.params.get("call_jaxpr") or equation.params.get("jaxpr")
    if inner is None:
        return equation.primitive.name in _ELEMENTWISE
    shapes = {one.aval.shape for step in inner.jaxpr.eqns for one in (*step.invars, *step.outvars)}
    return (
        len(equation.outvars) == 1
        and shapes <= {(), equation.outvars[0].aval.shape}
        and all(_is_elementwise(step) for step in inner.jaxpr.eqns)
    )


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


def _convolution(images: Value, kernel: Value, given: dict[str, Any]) -> Laid:
    """`convolved`, which knows one layout and no padding, for any layout and padding."""
    spec = given["dimension_numbers"]
    row, *others = spec.lhs_spec
    # What no layer has touched yet are the rows themselves.
    shared = not isinstance(images, Laid)
    images, kernel = plain(images).transpose(*others, row), plain(kernel).transpose(spec.rhs_spec)
    edges = [(0, 0), *given["padding"], (0, 0)]
    if any(edge != (0, 0) for edge in edges):
        zero = jnp.zeros((), images.dtype)
        images = jax.lax.pad(images, zero, [(low, high, 0) for low, high in edges])
    found = convolved(images, kernel, tuple(given["window_strides"]), shared=shared)
    wanted = given["preferred_element_type"]
    found = found if wanted is None else found.astype(wanted)
    # Rows, channels, height and width, in memory's axes.
    axes = dict(zip(spec.out_spec, [(5,), (0,), (3, 1), (4, 2)], strict=True))
    return Laid(found, tuple(axes[place] for place in range(4)))


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


_POOLINGS: dict[str, Callable[[Laid, Sequence[int]], Laid]] = {
    "reduce_window_sum": window_sums,
    "reduce_window_max": window_maxima,
}

# What is computed element by element, by functions that know no shapes.
# fmt: off
_ELEMENTWISE = frozenset([
    "abs", "add", "add_any", "and", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos",
    "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne",
    "neg", "not", "or", "pow", "rem", "round", "rsqrt", "select_n", "sign", "sin", "sqrt",
    "square", "stop_gradient", "sub", "tan", "tanh",
])
# fmt: on
