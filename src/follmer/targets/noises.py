"""Noise around a network's outputs: normal, of one size or of each row's own, and Student's t."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc
from jax.scipy.stats import norm
from jax.scipy.stats import t as student_t
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets.likelihood import AbstractLikelihood, half_normal, like_outputs, per_row
from follmer.tools.checks import positive_float, positive_floats

PER_ROW = "per_row"
# The least noise of a row where y is continuous, over the sd of y: without one, the density of a
# row that a network passes through has no bound.
_FLOOR = 1e-3


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
        if isinstance(self.sd, str):
            if self.sd != PER_ROW:
                raise InputError(
                    f"sd must be a number above 0, 'per_row' or None, not {self.sd!r}."
                )
        # An inferred sd is traced, and positive by its constraint.
        elif not isinstance(self.sd, jax.core.Tracer):
            positive_floats("sd", self.sd)
        if self.sd_floor is not None and not isinstance(self.sd_floor, jax.core.Tracer):
            positive_floats("sd_floor", self.sd_floor)

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
        if not self._is_per_row:
            return like_outputs(y, outputs_shape)
        if len(outputs_shape) < 2 or outputs_shape[-1] % 2:
            raise InputError(
                f"the network's outputs have shape {outputs_shape}; with sd='per_row' their last "
                "axis holds means and then as many widths.",
                hint="a network of two outputs for each column of y",
            )
        half = outputs_shape[-1] // 2
        return like_outputs(y, outputs_shape[:-1] + ((half,) if half > 1 else ()))

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
        # An array, so that other data of the same shape compile nothing.
        return Normal(PER_ROW, self.sd_scale, jnp.asarray(_noise_floor(y), jnp.result_type(float)))

    @property
    def _is_per_row(self) -> bool:
        return isinstance(self.sd, str)

    def _mean_and_sd(self, outputs: Array) -> tuple[Array, Any]:
        if self.sd is None:
            raise InputError(
                "the noise of this likelihood is to be inferred, so it has no value by itself.",
                hint="Normal(sd=…), or Predictive(likelihood=lambda theta: Normal(theta['sd']))",
            )
        if not self._is_per_row:
            return outputs, self.sd
        half = outputs.shape[-1] // 2
        mean, width = outputs[..., :half], outputs[..., half:]
        if half == 1:
            mean, width = mean[..., 0], width[..., 0]
        floor = jnp.asarray(_FLOOR if self.sd_floor is None else self.sd_floor, outputs.dtype)
        return mean, floor + jax.nn.softplus(width)


class StudentT(AbstractLikelihood):
    """y = output + scale · t, with Student's t of `df` degrees of freedom: noise with outliers.

    `scale` is a number, or None to infer it: it becomes a parameter `noise_scale` with a
    half-normal prior of scale `prior_scale`. `df` is above 2, so that y has a variance.
    """

    df: float = 4.0
    scale: float | Array | None = None
    prior_scale: float = 1.0

    def __check_init__(self) -> None:
        positive_float("prior_scale", self.prior_scale)
        if not isinstance(self.scale, jax.core.Tracer):
            positive_floats("scale", self.scale)
        if positive_float("df", self.df) <= 2:
            raise InputError(
                f"df={self.df}: with 2 degrees of freedom or fewer y has no variance.",
                hint="df=4",
            )

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return per_row(student_t.logpdf(y, self.df, outputs, self._known_scale))

    def mean(self, outputs: Array) -> Array:
        return outputs

    def variance(self, outputs: Array) -> Array:
        variance = jnp.square(self._known_scale) * (self.df / (self.df - 2.0))
        return jnp.broadcast_to(variance, outputs.shape).astype(outputs.dtype)

    def cdf(self, outputs: Array, y: Array) -> Array:
        z = (y - outputs) / self._known_scale
        beyond = 0.5 * betainc(0.5 * self.df, 0.5, self.df / (self.df + z**2))
        return jnp.where(z < 0, beyond, 1.0 - beyond)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        return like_outputs(y, outputs_shape)

    @property
    def unknown(self) -> str | None:
        return "noise_scale" if self.scale is None else None

    def log_prior(self, value: Float[Array, ""]) -> Float[Array, ""]:
        return half_normal(value, self.prior_scale)

    def given(self, value: Float[Array, ""]) -> "StudentT":
        return StudentT(self.df, value)

    @property
    def _known_scale(self) -> Any:
        if self.scale is None:
            raise InputError(
                "the scale of this likelihood is to be inferred, so it has no value by itself.",
                hint="StudentT(df, scale)",
            )
        return self.scale


def _noise_floor(y: np.ndarray) -> float:
    """The sd of rounding where values of y repeat; a small share of the sd of y elsewhere."""
    values = np.unique(np.asarray(y, float))
    spread = float(np.std(y)) or 1.0
    # Twice each on average: y is recorded on a grid. Its step is the usual gap.
    if 1 < len(values) <= y.size / 2:
        return max(float(np.median(np.diff(values))) / np.sqrt(12.0), _FLOOR * spread)
    return _FLOOR * spread
