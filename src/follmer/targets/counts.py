"""Counts around a network's outputs: Poisson, and negative binomial where they scatter more."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaincc, gammaln
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets.likelihood import (
    AbstractLikelihood,
    half_normal,
    like_outputs,
    per_row,
    refuse,
)
from follmer.tools.checks import positive_float, positive_floats

# From here on Stirling's series is exact to single precision: its next term is 1/(360 r³).
_LARGE = 20.0


class Poisson(AbstractLikelihood):
    """y is a count; the outputs are logarithms of its mean."""

    is_count: ClassVar[bool] = True

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return per_row(y * outputs - jnp.exp(outputs) - gammaln(y + 1.0))

    def mean(self, outputs: Array) -> Array:
        return jnp.exp(outputs)

    def variance(self, outputs: Array) -> Array:
        return jnp.exp(outputs)

    def cdf(self, outputs: Array, y: Array) -> Array:
        below = gammaincc(jnp.floor(jnp.maximum(y, 0)) + 1, jnp.exp(outputs))
        return jnp.where(y < 0, 0.0, below)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        y = like_outputs(y, outputs_shape)
        refuse(y, (y != np.floor(y)) | (y < 0), "a count 0, 1, 2, …", "likelihood='normal'")
        return y


class NegativeBinomial(AbstractLikelihood):
    """y is a count; the outputs are logarithms of its mean μ.

    Its variance is μ + (overdispersion · μ)².
    `overdispersion` is a number, or None to infer it: it becomes a parameter of that name with a
    half-normal prior of scale `prior_scale`. Towards 0 the counts are Poisson's.
    """

    overdispersion: float | Array | None = None
    prior_scale: float = 1.0
    is_count: ClassVar[bool] = True

    def __check_init__(self) -> None:
        positive_float("prior_scale", self.prior_scale)
        if not isinstance(self.overdispersion, jax.core.Tracer):
            positive_floats("overdispersion", self.overdispersion)

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        size = self._size
        # ln(1 + μ/r), finite where μ itself overflows.
        excess = jax.nn.softplus(outputs - jnp.log(size))
        rising = _log_rising_factorial(y, size)
        return per_row(rising - gammaln(y + 1.0) + y * (outputs - excess) - size * excess)

    def mean(self, outputs: Array) -> Array:
        return jnp.exp(outputs)

    def variance(self, outputs: Array) -> Array:
        mean = jnp.exp(outputs)
        return mean + mean**2 / self._size

    def cdf(self, outputs: Array, y: Array) -> Array:
        size = self._size
        count = jnp.floor(jnp.maximum(y, 0.0)) + 1.0
        below = betainc(size, count, size / (size + jnp.exp(outputs)))
        return jnp.where(y < 0, 0.0, below)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        y = like_outputs(y, outputs_shape)
        refuse(y, (y != np.floor(y)) | (y < 0), "a count 0, 1, 2, …", "likelihood='normal'")
        return y

    @property
    def unknown(self) -> str | None:
        return "overdispersion" if self.overdispersion is None else None

    def log_prior(self, value: Float[Array, ""]) -> Float[Array, ""]:
        return half_normal(value, self.prior_scale)

    def given(self, value: Float[Array, ""]) -> "NegativeBinomial":
        return NegativeBinomial(value)

    @property
    def _size(self) -> Any:
        """The number of failures r: the variance is μ + μ²/r."""
        if self.overdispersion is None:
            raise InputError(
                "the overdispersion of this likelihood is to be inferred, so it has no value by "
                "itself.",
                hint="NegativeBinomial(overdispersion)",
            )
        return 1.0 / jnp.square(self.overdispersion)


def _log_rising_factorial(y: Array, size: Array) -> Array:
    """ln Γ(y + r) − ln Γ(r) − y ln r: by Stirling's series for large r, where the terms cancel."""
    small, large = jnp.minimum(size, _LARGE), jnp.maximum(size, _LARGE)
    direct = gammaln(y + small) - gammaln(small) - y * jnp.log(small)
    series = (large + y - 0.5) * jnp.log1p(y / large) - y
    series += (1.0 / (large + y) - 1.0 / large) / 12.0
    return jnp.where(size < _LARGE, direct, series)
