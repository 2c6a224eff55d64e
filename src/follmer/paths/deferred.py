"""A function's products with its weights, set aside in the reverse pass.

Plain autodiff of a scan adds up each weight's gradient step by step, and moves the whole matrix
through memory every time. Here a product hands out its input and the cotangent of its output; after
the scan, one product of all of them is the gradient. The function's jaxpr is searched for matrices
that it closes over and multiplies by something: linear layers, however they are batched. All else
is left to autodiff.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Float, PyTree

# Weights, then taps on the products' outputs, then arguments; to (answer, inputs of the products).
Tapped = Callable[..., tuple[PyTree, list[Array]]]


class _Product(NamedTuple):
    """An equation that multiplies a weight, and how."""

    equation: int
    weight: int  # which of the function's arrays
    side: int  # of the weight: left or right
    axis: int  # of the weight, summed over
    input_axis: int  # of the input, summed over


class Deferred:
    """A function whose products with closed-over matrices can be tapped.

    `arrays` are all inexact arrays that it closes over: what it can be differentiated by.
    """

    def __init__(self, function: Callable[..., PyTree], *examples: PyTree):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
        self._jaxpr = closed.jaxpr
        self._structure = jax.tree.structure(shape)
        constants = [
            (variable, jnp.asarray(value))
            for variable, value in zip(self._jaxpr.constvars, closed.consts, strict=True)
        ]
        trained = [one for one in constants if jnp.issubdtype(one[1].dtype, jnp.inexact)]
        self._variables = [variable for variable, _ in trained]
        self.arrays = [value for _, value in trained]
        self._rest = [one for one in constants if one[0] not in self._variables]
        self._products = list(self._found())

    def _found(self) -> Any:
        """The equations of the form weight · input."""
        places = {variable: place for place, variable in enumerate(self._variables)}
        for index, equation in enumerate(self._jaxpr.eqns):
            if equation.primitive.name != "dot_general":
                continue
            contracted, batched = equation.params["dimension_numbers"]
            weights = [
                side
                for side, one in enumerate(equation.invars)
                if not isinstance(one, core.Literal) and one in places and one.aval.ndim == 2
            ]
            if len(weights) == 1 and not batched[0] and len(contracted[0]) == 1:
                side = weights[0]
                place = places[equation.invars[side]]
                axes = contracted[side][0], contracted[1 - side][0]
                yield _Product(index, place, side, *axes)

    def taps(self, *lengths: int) -> list[Float[Array, "..."]]:
        """Zeros to hand in as taps, of which as many are stacked."""
        shapes = []
        for one in self._products:
            equation = self._jaxpr.eqns[one.equation]
            rows = list(equation.invars[1 - one.side].aval.shape)
            del rows[one.input_axis]
            weight = equation.invars[one.side].aval
            shapes.append(((*lengths, *rows, weight.shape[1 - one.axis]), weight.dtype))
        return [jnp.zeros(shape, dtype) for shape, dtype in shapes]

    def __call__(
        self, arrays: Sequence[Array], taps: Sequence[Array], *args: PyTree
    ) -> tuple[PyTree, list[Array]]:
        """The function's answer, and the inputs of its products.

        The cotangents of `taps` are those of the products' outputs, and weights get none from them.
        """
        values: dict[Any, Any] = dict(self._rest)
        values.update(zip(self._variables, arrays, strict=True))
        values.update(zip(self._jaxpr.invars, jax.tree.leaves(args), strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else values[atom]

        places = {one.equation: place for place, one in enumerate(self._products)}
        inputs = []
        for index, equation in enumerate(self._jaxpr.eqns):
            operands = [read(atom) for atom in equation.invars]
            if index in places:
                place = places[index]
                one = self._products[place]
                weight = jnp.moveaxis(operands[one.side], one.axis, 1)
                inputs.append(jnp.moveaxis(operands[1 - one.side], one.input_axis, -1))
                product = _tapped(inputs[-1], weight, taps[place])
                answers = [product if one.side else jnp.moveaxis(product, -1, 0)]
            else:
                answers = _evaluated(equation, operands)
            values.update(zip(equation.outvars, answers, strict=True))
        outputs = [read(atom) for atom in self._jaxpr.outvars]
        return jax.tree.unflatten(self._structure, outputs), inputs

    def weight_gradients(
        self, inputs: Sequence[Array], cotangents: Sequence[Array]
    ) -> list[tuple[int, Array]]:
        """For each product which array it multiplies by, and its share of the array's gradient."""
        gradients = []
        for one, x, y in zip(self._products, inputs, cotangents, strict=True):
            first, second = (y, x) if one.axis == 1 else (x, y)
            # Steps and paths as they are: to flatten them would gather all paths on every device.
            rows = tuple(range(x.ndim - 1))
            gradients.append((one.weight, jnp.tensordot(first, second, (rows, rows))))
        return gradients


def deferring(tapped: Tapped, function: Deferred, num_calls: int) -> Callable[..., PyTree]:
    """`tapped` as a function of (state, *rest) alone, each weight's gradient formed once.

    `tapped` takes arrays, taps, state and rest, and calls the function so many times, each with its
    own taps; it returns its answer and the stacked inputs of the products. It is differentiated by
    arrays and state.
    """

    @jax.custom_vjp
    def whole(arrays: list[Array], state: PyTree, *rest: PyTree) -> PyTree:
        return tapped(arrays, function.taps(num_calls), state, *rest)[0]

    def forward(arrays: list[Array], state: PyTree, *rest: PyTree) -> tuple[PyTree, Any]:
        def run(arrays: list[Array], taps: list[Array], state: PyTree) -> Any:
            return tapped(arrays, taps, state, *rest)

        taps = function.taps(num_calls)
        answer, pull_back, inputs = jax.vjp(run, arrays, taps, state, has_aux=True)
        return answer, (pull_back, inputs, len(rest))

    def backward(kept: Any, cotangent: PyTree) -> tuple[PyTree, ...]:
        pull_back, inputs, num_rest = kept
        of_arrays, of_taps, of_state = pull_back(cotangent)
        for place, gradient in function.weight_gradients(inputs, of_taps):
            of_arrays[place] = of_arrays[place] + gradient
        return of_arrays, of_state, *[None] * num_rest

    whole.defvjp(forward, backward)
    return lambda state, *rest: whole(function.arrays, state, *rest)


@jax.custom_vjp
def _tapped(x: Array, weight: Array, tap: Array) -> Array:
    """x · weightᵀ; the tap gets the cotangent, the weight none."""
    return x @ weight.T


def _tapped_forward(x: Array, weight: Array, tap: Array) -> tuple[Array, Array]:
    return x @ weight.T, weight


def _tapped_backward(weight: Array, cotangent: Array) -> tuple[Array | None, ...]:
    return cotangent @ weight, None, cotangent


_tapped.defvjp(_tapped_forward, _tapped_backward)


def _evaluated(equation: Any, operands: list[Any]) -> list[Any]:
    with equation.ctx.manager:
        parameters = equation.primitive.get_bind_params(equation.params)
        answer = equation.primitive.bind(*operands, **parameters)
    return answer if equation.primitive.multiple_results else [answer]
