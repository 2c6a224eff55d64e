"""What a function costs, read off its jaxpr: nothing is compiled, and no version of XLA matters."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import PyTree

# An exponential or a logarithm takes as long as so many products.
_TRANSCENDENTAL = 20.0
_TRANSCENDENTALS = frozenset(
    """exp exp2 expm1 log log1p sin cos tan tanh sinh cosh asin acos atan atan2 logistic pow cbrt
    erf erfc erf_inv lgamma digamma igamma igammac regularized_incomplete_beta""".split()  # noqa: SIM905
)
# Products of a factorisation of an n × n matrix, over n³.
_CUBIC = {"cholesky": 1 / 3, "lu": 2 / 3, "eigh": 9.0, "svd": 20.0, "qr": 4 / 3, "eig": 25.0}
# Primitives that read no more than they return.
_SELECTING = frozenset(("slice", "dynamic_slice", "gather"))
# Primitives that only name elements anew: XLA seldom keeps what they return.
_VIEWS = frozenset(("reshape", "squeeze", "expand_dims", "transpose", "broadcast_in_dim", "split"))
# Primitives whose inner jaxpr is what they do to one element.
_PER_ELEMENT = ("scatter", "reduce", "select_and_scatter")
# Rounds of a loop whose end the jaxpr does not tell.
_UNKNOWN_ROUNDS = 32
# A gradient costs so many evaluations (reverse mode: forward, back, and what is kept).
_GRADIENT = 3.0


class Cost(NamedTuple):
    """Arithmetic operations, and the bytes of everything computed on the way if none were freed."""

    operations: float
    bytes: float

    @property
    def of_gradient(self) -> float:
        """Operations of the gradient."""
        return _GRADIENT * self.operations


def cost_of(function: Callable[..., Any], *arguments: PyTree) -> tuple[Cost, PyTree]:
    """The cost of a call with arguments of these shapes, and the shapes of what it returns."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return _cost(jaxpr.jaxpr), shapes


def _cost(jaxpr: Jaxpr) -> Cost:
    parts = [_of_equation(equation) for equation in jaxpr.eqns]
    return Cost(sum(part.operations for part in parts), sum(part.bytes for part in parts))


def _of_equation(equation: Any) -> Cost:
    name, sizes = equation.primitive.name, [_size(out) for out in equation.outvars]
    inner = [] if name.startswith(_PER_ELEMENT) else [_cost(one) for one in _inner(equation)]
    outputs = 0.0 if name in _VIEWS else sum(_bytes(out) for out in equation.outvars)
    if not inner:
        return Cost(_operations(equation, name, float(sum(sizes))), outputs)
    if name == "cond":
        return Cost(max(one.operations for one in inner), max(one.bytes for one in inner))
    rounds = {"scan": equation.params.get("length", 1), "while": _UNKNOWN_ROUNDS}.get(name, 1)
    # Rounds of a loop run one after the other: their memory is not needed at once, but for what
    # they return.
    held = sum(one.bytes for one in inner) + (outputs if name == "scan" else 0.0)
    return Cost(rounds * sum(one.operations for one in inner), held)


def _operations(equation: Any, name: str, size: float) -> float:
    first: Any = equation.invars[0] if equation.invars else None
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2.0 * size * math.prod(first.aval.shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        return 2.0 * size * _size(equation.invars[1]) / max(equation.invars[1].aval.shape[0], 1)
    if name in _CUBIC:
        return _CUBIC[name] * _size(first) * first.aval.shape[-1]
    if name == "triangular_solve":
        return size * first.aval.shape[-1]
    if name in _TRANSCENDENTALS:
        return _TRANSCENDENTAL * size
    if name in _SELECTING:
        return size
    # A reduction reads more than it returns.
    return max(size, float(max(map(_size, equation.invars), default=0)))


def _inner(equation: Any) -> list[Jaxpr]:
    parts = jax.tree.leaves(list(equation.params.values()))
    inner = [part.jaxpr if isinstance(part, ClosedJaxpr) else part for part in parts]
    return [part for part in inner if isinstance(part, Jaxpr)]


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))


def _bytes(variable: Any) -> float:
    return float(_size(variable) * getattr(variable.aval.dtype, "itemsize", 8))
