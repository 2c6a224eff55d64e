"""Noise around a network's outputs: normal or Student's t, of one width or of each row's own."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jax.scipy.stats import norm
from jax.scipy.stats import t as student_t
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets import widths
from follmer.targets.likelihood import AbstractLikelihood, half_normal, like_outputs, per_row
from follmer.targets.widths import PER_ROW
from follmer.tools.checks import positive_float


class Normal(AbstractLikelihood):
    """y = output + noise, the noise normal.

    `sd` is its standard deviation where known (a number, or one per output). None infers it: it
    becomes a parameter `noise_sd`, shared by all outputs, with a half-normal prior of scale
    `sd_scale`.

    With "per_row" every row has its own: the network's outputs are twice as many as the columns of
    y, first the means, then as many numbers whose softplus, plus `sd_floor`, is the sd. The floor
    keeps the density bounded. Left out, it is taken from the data: what rounding does to y
    (resolution / √12) where values of y repeat, else a thousandth of y's own sd.
    """

    sd: float | Array | str | None = None
    sd_scale: float = 1.0
    sd_floor: float | Array | None = None

    def __check_init__(self) -> None:
        positive_float("sd_scale", self.sd_scale)
        widths.check_width("sd", self.sd)
        widths.check_floor("sd_floor", self.sd_floor)

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return per_row(norm.logpdf(y, *self._mean_and_sd(outputs)))

    def mean(self, outputs: Array) -> Array:
        return self._mean_and_sd(outputs)[0]

    def variance(self, outputs: Array) -> Array:
        mean, sd = self._mean_and_sd(outputs)
        return jnp.broadcast_to(jnp.square(sd), mean.shape).astype(mean.dtype)

    def cdf(self, outputs: Array, y: Array) -> Array:
        return norm.cdf(y, *self._mean_and_sd(outputs))

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        if self._is_per_row:
            return widths.observed(y, outputs_shape, "sd")
        return like_outputs(y, outputs_shape)

    @property
    def unknown(self) -> str | None:
        return "noise_sd" if self.sd is None else None

    def log_prior(self, value: Float[Array, ""]) -> Float[Array, ""]:
        """Of an inferred noise: half-normal."""
        return half_normal(value, self.sd_scale)

    def given(self, value: Float[Array, ""]) -> "Normal":
        return Normal(value)

    def for_data(self, y: np.ndarray) -> "Normal":
        """With a floor taken from the data, where rows have their own noise and none was given."""
        if not self._is_per_row or self.sd_floor is not None:
            return self
        return Normal(PER_ROW, self.sd_scale, widths.floor_of(y))

    @property
    def _is_per_row(self) -> bool:
        return isinstance(self.sd, str)

    def _mean_and_sd(self, outputs: Array) -> tuple[Array, Any]:
        if self.sd is None:
            raise InputError(
                "the noise of this likelihood is to be inferred, so it has no value by itself.",
                hint="Normal(sd=…), or Predictive(likelihood=lambda theta: Normal(theta['sd']))",
            )
        return widths.located(outputs, self.sd_floor) if self._is_per_row else (outputs, self.sd)


class StudentT(AbstractLikelihood):
    """y = output + scale · t, with Student's t of `df` degrees of freedom: noise with outliers.

    `scale` is a number, or None to infer it: it becomes a parameter `noise_scale` with a
    half-normal prior of scale `prior_scale`. With "per_row" every row has its own: the network has
    a second output for each column of y, as for `Normal(sd="per_row")`, and `scale_floor` is like
    `sd_floor` there. `df` is above 2, so that y has a variance.
    """

    df: float = 4.0
    scale: float | Array | str | None = None
    prior_scale: float = 1.0
    scale_floor: float | Array | None = None

    def __check_init__(self) -> None:
        positive_float("prior_scale", self.prior_scale)
        widths.check_width("scale", self.scale)
        widths.check_floor("scale_floor", self.scale_floor)
        if positive_float("df", self.df) <= 2:
            raise InputError(
                f"df={self.df}: with 2 degrees of freedom or fewer y has no variance.",
                hint="df=4",
            )

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return per_row(student_t.logpdf(y, self.df, *self._mean_and_scale(outputs)))

    def mean(self, outputs: Array) -> Array:
        return self._mean_and_scale(outputs)[0]

    def variance(self, outputs: Array) -> Array:
        mean, scale = self._mean_and_scale(outputs)
        variance = jnp.square(scale) * (self.df / (self.df - 2.0))
        return jnp.broadcast_to(variance, mean.shape).astype(mean.dtype)

    def cdf(self, outputs: Array, y: Array) -> Array:
        mean, scale = self._mean_and_scale(outputs)
        z = (y - mean) / scale
        beyond = _t_tail(z**2, self.df)
        return jnp.where(z < 0, beyond, 1.0 - beyond)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        if self._is_per_row:
            return widths.observed(y, outputs_shape, "scale")
        return like_outputs(y, outputs_shape)

    @property
    def unknown(self) -> str | None:
        return "noise_scale" if self.scale is None else None

    def log_prior(self, value: Float[Array, ""]) -> Float[Array, ""]:
        return half_normal(value, self.prior_scale)

    def given(self, value: Float[Array, ""]) -> "StudentT":
        return StudentT(self.df, value)

    def for_data(self, y: np.ndarray) -> "StudentT":
        """With a floor taken from the data, where rows have their own scale and none was given."""
        if not self._is_per_row or self.scale_floor is not None:
            return self
        return StudentT(self.df, PER_ROW, self.prior_scale, widths.floor_of(y))

    @property
    def _is_per_row(self) -> bool:
        return isinstance(self.scale, str)

    def _mean_and_scale(self, outputs: Array) -> tuple[Array, Any]:
        if self.scale is None:
            raise InputError(
                "the scale of this likelihood is to be inferred, so it has no value by itself.",
                hint="StudentT(df, scale)",
            )
        if self._is_per_row:
            return widths.located(outputs, self.scale_floor)
        return outputs, self.scale


def _t_tail(squared: Array, df: float) -> Array:
    """P(T > |z|) for Student's t, of z².

    The incomplete beta function is a long loop, and seconds of compilation; for the usual 4 degrees
    of freedom the tail is elementary: with c = df/(df + z²) it is (1 − A)/2, A = √(1 − c)(1 + c/2),
    where 1 − A² = c² (3 + c)/4.
    """
    c = df / (df + squared)
    if df == 4.0:
        inside = jnp.sqrt(1.0 - c) * (1.0 + 0.5 * c)
        return c**2 * (3.0 + c) / (8.0 * (1.0 + inside))
    return 0.5 * betainc(0.5 * df, 0.5, c)
