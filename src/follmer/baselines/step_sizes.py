"""Step sizes of Langevin dynamics: a number, a schedule, or one for each leaf."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from follmer.errors import InputError
from follmer.targets import Target
from follmer.tools.checks import options_checked, positive_float

Schedule = Callable[[Int[Array, ""]], Any]


@dataclasses.dataclass(frozen=True)
class PolynomialDecay:
    """λ(i) = a / (i + b)^c at iteration i = 0, 1, …; the chain converges for ½ < c ≤ 1."""

    a: float
    b: float = 10.0
    c: float = 0.55

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            object.__setattr__(self, name, positive_float(name, getattr(self, name)))

    def __call__(self, iteration: Int[Array, ""]) -> Float[Array, ""]:
        return self.a / (iteration + self.b) ** self.c


PolynomialDecay.__init__ = options_checked(PolynomialDecay.__init__)  # type: ignore[method-assign]


def as_step_sizes(
    step_size: PyTree, target: Target, num_iterations: int
) -> Callable[[Int[Array, ""]], Float[Array, "..."]]:
    """A function of the iteration that gives one step size, or one for each flat coordinate."""
    if step_size is None:
        step_size = PolynomialDecay(10.0 / (target.num_data or 1), b=1000.0)
    if jax.tree_util.all_leaves([step_size]):
        schedule = _as_schedule("step_size", step_size, num_iterations)
        return lambda iteration: jnp.asarray(schedule(iteration), target.dtype)
    space = target.space
    if target.affine is not None:
        raise InputError(
            "step sizes for separate leaves were given, but whitening has mixed the leaves.",
            hint="the target as it was before `whitened`, or one step size for all",
        )
    schedules = [
        _as_schedule(f"step_size of {leaf.name}", value, num_iterations)
        for leaf, value in zip(space.leaves, space.spread("step_size", step_size), strict=True)
    ]
    leaf_of = np.repeat(
        np.arange(len(schedules)), [leaf.stop - leaf.start for leaf in space.leaves]
    )

    def of_every_coordinate(iteration: Int[Array, ""]) -> Float[Array, " dim"]:
        sizes = [jnp.asarray(schedule(iteration), target.dtype) for schedule in schedules]
        return jnp.stack(sizes)[leaf_of]

    return of_every_coordinate


def _as_schedule(name: str, value: Any, num_iterations: int) -> Schedule:
    if not callable(value):
        constant = positive_float(name, value)
        return lambda iteration: constant
    for iteration in (0, num_iterations - 1):
        positive_float(f"{name} at iteration {iteration}", value(jnp.asarray(iteration, jnp.int32)))
    return value
