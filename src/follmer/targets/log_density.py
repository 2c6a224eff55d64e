"""A log density and a point, as BlackJAX and bayeux have them, as a target."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError, NonFiniteError
from follmer.targets.target import LogDensity, Target, checked_result
from follmer.tools.checks import options_checked

Transform = Callable[[PyTree], PyTree]


@options_checked
def from_log_density(
    log_density: LogDensity | Any,
    initial_position: PyTree = None,
    *,
    transform_fn: Transform | None = None,
) -> Target:
    """The target of a log density of a position, given a position at which it is finite.

    What `blackjax.nuts(log_density, …).init(position)` or `bayeux.Model(log_density, test_point)`
    take; a bayeux model alone will do too.

    **Arguments:**

    - `log_density`: a function of a position.
    - `initial_position`: any tree of numbers. It becomes the origin of the target's coordinates,
      and so where the search begins; bayeux calls it `test_point`.
    - `transform_fn`: from unconstrained trees of the same shapes to positions, as bayeux has it.
      Its Jacobian is computed as a whole, which suits up to some hundred numbers; for more,
      `Target` with `constraints`. The origin is then that of the unconstrained numbers.
    """
    if hasattr(log_density, "log_density") and hasattr(log_density, "test_point"):
        model, log_density = log_density, log_density.log_density
        initial_position = model.test_point if initial_position is None else initial_position
        transform_fn = (
            getattr(model, "transform_fn", None) if transform_fn is None else transform_fn
        )
    _check_functions(log_density, transform_fn)
    if initial_position is None:
        raise InputError(
            "initial_position is missing.",
            hint="a tree of numbers at which the log density is finite, e.g. jnp.zeros(2)",
        )
    position = _as_position(initial_position)
    _check_density(log_density, position)
    if transform_fn is None:
        return Target(
            _Shifted(log_density, position),
            jax.tree.map(jnp.zeros_like, position),
            outputs=_Shift(position),
        )
    _check_transform(transform_fn, position)
    return Target(_Transformed(log_density, transform_fn), position, outputs=_Outputs(transform_fn))


# Modules instead of closures: targets of the same functions share what is compiled.
class _Shift(eqx.Module):
    origin: PyTree

    def __call__(self, theta: PyTree) -> PyTree:
        return jax.tree.map(jnp.add, theta, self.origin)


class _Shifted(eqx.Module):
    log_density: LogDensity
    origin: PyTree

    def __call__(self, theta: PyTree) -> Float[Array, ""]:
        return self.log_density(_Shift(self.origin)(theta))


class _Outputs(eqx.Module):
    transform: Transform

    def __call__(self, theta: PyTree) -> PyTree:
        return self.transform(theta)


class _Transformed(eqx.Module):
    log_density: LogDensity
    transform: Transform

    def __call__(self, theta: PyTree) -> Float[Array, ""]:
        flat, unravel = ravel_pytree(theta)
        jacobian = jax.jacfwd(lambda x: ravel_pytree(self.transform(unravel(x)))[0])(flat)
        return self.log_density(self.transform(theta)) + jnp.linalg.slogdet(jacobian)[1]


def _as_position(position: PyTree) -> PyTree:
    """The tree with its numbers as floating arrays of one type."""
    try:
        arrays = jax.tree.map(jnp.asarray, position)
        dtype = jnp.result_type(float, *jax.tree.leaves(arrays))
    except (TypeError, ValueError) as error:
        raise InputError(f"initial_position is not a tree of numbers: {error}.") from None
    return jax.tree.map(lambda leaf: leaf.astype(dtype), arrays)


def _check_functions(log_density: Any, transform_fn: Any) -> None:
    for name, function in (("log_density", log_density), ("transform_fn", transform_fn)):
        if not callable(function) and not (function is None and name == "transform_fn"):
            raise InputError(f"{name} is {type(function).__name__}, not a function of a position.")


def _check_density(log_density: LogDensity, position: PyTree) -> None:
    _, shape = checked_result("log_density", log_density, position)
    if shape != ():
        return  # Target says what is wrong.
    value = float(log_density(position))
    if not np.isfinite(value):
        raise NonFiniteError(
            f"the log density at the initial position is {value}.",
            cause="the position is outside the support",
            hint="a position of positive density",
        )


def _check_transform(transform_fn: Transform, position: PyTree) -> None:
    result = jax.eval_shape(transform_fn, position)
    shapes = [jax.tree.map(lambda leaf: tuple(leaf.shape), tree) for tree in (result, position)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"transform_fn turns a tree of shapes {shapes[1]} into {shapes[0]}.",
            cause="a simplex or a matrix, which has fewer unconstrained numbers",
            hint="follmer.Target(log_density, like=…, constraints=…)",
        )
