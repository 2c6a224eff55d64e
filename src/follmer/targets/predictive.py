"""What predictions need beside draws: outputs at new rows, and the likelihood around them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from follmer.errors import InputError
from follmer.targets.data import first_place
from follmer.targets.likelihoods import AbstractLikelihood


class Predictive(eqx.Module):
    """How y is distributed at rows x, given parameters.

    **Arguments:**

    - `outputs`: a function `(theta, x)` of a batch of rows, with one row of outputs for each.
    - `likelihood`: one of `follmer.likelihoods`, or a function of theta that returns one.
    - `row_shape`: the shape of a row of x, where `Posterior.predict` shall insist on it.
    - `has_hidden_layers`: whether the outputs are those of a network with hidden layers, whose
      parameters have countless equal modes.
    """

    outputs: Callable[[PyTree, Array], Array]
    likelihood: AbstractLikelihood | Callable[[PyTree], AbstractLikelihood]
    row_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    has_hidden_layers: bool = eqx.field(static=True, default=False)

    def likelihood_at(self, theta: PyTree) -> AbstractLikelihood:
        """The likelihood, given parameters."""
        likelihood = self.likelihood
        if not isinstance(likelihood, AbstractLikelihood):
            likelihood = likelihood(theta)
        if not isinstance(likelihood, AbstractLikelihood):
            raise InputError(
                f"the predictive's likelihood is {type(likelihood).__name__}.",
                hint="one of follmer.likelihoods, or a function of theta that returns one",
            )
        return likelihood

    def outputs_shape(self, theta: PyTree, x: np.ndarray | Array) -> tuple[int, ...]:
        """The shape of the outputs at x; raises InputError where x cannot be taken."""
        if self.row_shape is not None and x.shape[1:] != self.row_shape:
            raise InputError(
                f"x has shape {x.shape}, so rows of shape {x.shape[1:]}; the target was built on "
                f"rows of shape {self.row_shape}.",
                cause="columns were added or dropped, or one row was given without its leading "
                "axis (x[None])",
            )
        row = jax.ShapeDtypeStruct(x.shape, x.dtype)
        try:
            result = jax.eval_shape(self.outputs, theta, row)
        except Exception as error:
            raise InputError(
                f"the network cannot be applied to x of shape {x.shape}: {error}",
                cause="x has another number of columns than the network takes",
                hint="Equinox modules take one row, Flax modules and functions a batch of rows",
            ) from error
        shape = getattr(result, "shape", None)
        if shape is None or shape[:1] != x.shape[:1]:
            described = type(result).__name__ if shape is None else f"shape {shape}"
            raise InputError(
                f"the network returns {described} for {x.shape[0]} rows of x; it must return an "
                "array with one row for each."
            )
        return tuple(shape)


def as_rows(name: str, values: Any, dtype: Any) -> np.ndarray:
    """An array of finite numbers, floats in the given dtype."""
    array = np.asarray(values)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or array.ndim == 0:
        raise InputError(
            f"{name} is {type(values).__name__} of dtype {array.dtype} and shape {array.shape}; "
            "an array of numbers with one row per data point is wanted.",
            hint="integer codes for categories",
        )
    bad = ~np.isfinite(array)
    if bad.any():
        raise InputError(
            f"{name} holds {array[bad][0]} in {first_place(bad)}"
            + (f", and {bad.sum() - 1} more such values." if bad.sum() > 1 else "."),
            cause="missing values, or a column scaled by a standard deviation of 0",
            hint=f"drop or impute those rows, e.g. numpy.nan_to_num({name})",
        )
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.inexact) else array
