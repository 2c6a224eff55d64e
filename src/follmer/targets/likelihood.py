"""What a likelihood of a network's outputs is, and checks that all of them share."""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets.data import first_place


class AbstractLikelihood(eqx.Module):
    """The distribution of y given outputs, row by row; the outputs of a row are independent."""

    # Whether y takes whole numbers only; quantiles then do so too.
    is_count: ClassVar[bool] = False

    @abc.abstractmethod
    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        """ln p(y | outputs), one value per row, constants kept."""

    @abc.abstractmethod
    def mean(self, outputs: Array) -> Array:
        """The mean of y."""

    @abc.abstractmethod
    def variance(self, outputs: Array) -> Array:
        """The variance of y, in the shape of `mean`."""

    @abc.abstractmethod
    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        """y as `log_prob` takes it; raises InputError at the first value that cannot be."""

    def cdf(self, outputs: Array, y: Array) -> Array | None:
        """P(Y ≤ y | outputs) in the shape of `mean`; None where y has no order."""
        return None

    def probabilities(self, outputs: Array) -> Array | None:
        """One probability per class along a last axis; None where there are no classes."""
        return None

    @property
    def unknown(self) -> str | None:
        """The name of a positive parameter that is inferred with the network's; None for none."""
        return None

    def log_prior(self, value: Float[Array, ""]) -> Float[Array, ""]:
        """The log prior density of the unknown parameter."""
        raise NotImplementedError("this likelihood has no unknown parameter")

    def given(self, value: Float[Array, ""]) -> "AbstractLikelihood":
        """The likelihood with its unknown parameter at that value."""
        raise NotImplementedError("this likelihood has no unknown parameter")

    def for_data(self, y: np.ndarray) -> "AbstractLikelihood":
        """The likelihood of data like these; the same unless it takes something from them."""
        return self


def half_normal(value: Float[Array, ""], scale: float) -> Float[Array, ""]:
    """The log density of a half-normal."""
    return norm.logpdf(value, 0.0, scale) + math.log(2.0)


def per_row(terms: Array) -> Float[Array, " rows"]:
    return jnp.sum(terms, axis=tuple(range(1, terms.ndim)))


def like_outputs(y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """y in the shape of the outputs; a last axis of length 1 is dropped."""
    y = y[..., 0] if y.shape == (*shape, 1) else y
    if y.shape != shape:
        raise InputError(
            f"y has shape {y.shape}; the network's outputs ask for {shape}.",
            cause="the network has another number of outputs than y has columns, or another "
            "likelihood was meant",
        )
    return y


def refuse(y: np.ndarray, bad: np.ndarray, wanted: str, hint: str) -> None:
    if bad.any():
        raise InputError(
            f"y holds {y[bad][0]} in {first_place(bad)}, which is not {wanted}.", hint=hint
        )
