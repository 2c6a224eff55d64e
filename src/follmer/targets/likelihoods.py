"""How y scatters around a network's outputs: normal noise, classes, counts."""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, gammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets.data import first_place
from follmer.tools.checks import named_or_own, positive_float, positive_floats


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


class Normal(AbstractLikelihood):
    """y = output + noise, the noise normal.

    `sd` is its standard deviation where known (a number, or one per output). None infers it: it
    becomes a parameter `noise_sd`, shared by all outputs, with a half-normal prior of scale
    `sd_scale`.
    """

    sd: float | Array | None = None
    sd_scale: float = 1.0

    def __check_init__(self) -> None:
        positive_float("sd_scale", self.sd_scale)
        # An inferred sd is traced, and positive by its constraint.
        if not isinstance(self.sd, jax.core.Tracer):
            positive_floats("sd", self.sd)

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return _per_row(norm.logpdf(y, outputs, self._known_sd))

    def mean(self, outputs: Array) -> Array:
        return outputs

    def variance(self, outputs: Array) -> Array:
        return jnp.broadcast_to(jnp.square(self._known_sd), outputs.shape).astype(outputs.dtype)

    def cdf(self, outputs: Array, y: Array) -> Array:
        return norm.cdf(y, outputs, self._known_sd)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        return _like_outputs(y, outputs_shape)

    def log_prior(self, sd: Float[Array, ""]) -> Float[Array, ""]:
        """Of an inferred noise: half-normal."""
        return norm.logpdf(sd, 0.0, self.sd_scale) + math.log(2.0)

    @property
    def _known_sd(self) -> Any:
        if self.sd is None:
            raise InputError(
                "the noise of this likelihood is to be inferred, so it has no value by itself.",
                hint="Normal(sd=…), or Predictive(likelihood=lambda theta: Normal(theta['sd']))",
            )
        return self.sd


class Bernoulli(AbstractLikelihood):
    """y is 0 or 1; the outputs are logits of 1. `probabilities` holds those of 0 and of 1."""

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return _per_row(jax.nn.log_sigmoid((2 * y - 1) * outputs))

    def mean(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs)

    def variance(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)

    def probabilities(self, outputs: Array) -> Array:
        return jnp.stack([jax.nn.sigmoid(-outputs), jax.nn.sigmoid(outputs)], -1)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        y = _like_outputs(y, outputs_shape)
        _refuse(y, (y != 0) & (y != 1), "a label 0 or 1", "labels -1 and 1: y=(y + 1) / 2")
        return y


class Categorical(AbstractLikelihood):
    """y is a class 0, 1, …; the outputs are logits, one per class along the last axis.

    `mean` and `variance` are those of the classes' indicators, so the mean is the probabilities.
    """

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        labels = y.astype(jnp.int32)[..., None]
        return _per_row(jnp.take_along_axis(jax.nn.log_softmax(outputs), labels, -1))

    def mean(self, outputs: Array) -> Array:
        return jax.nn.softmax(outputs)

    def variance(self, outputs: Array) -> Array:
        return jax.nn.softmax(outputs) * (1 - jax.nn.softmax(outputs))

    def probabilities(self, outputs: Array) -> Array:
        return jax.nn.softmax(outputs)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        if len(outputs_shape) < 2:
            raise InputError(
                f"the network's outputs have shape {outputs_shape}; a categorical likelihood takes "
                "one logit per class, and two classes at least.",
                hint="one output per class, or likelihood='bernoulli'",
            )
        if y.shape == outputs_shape:
            raise InputError(
                f"y has shape {y.shape}, one column per class; labels are wanted.",
                cause="y is one-hot",
                hint="y.argmax(-1)",
            )
        y = _like_outputs(y, outputs_shape[:-1])
        classes = outputs_shape[-1]
        bad = (y != np.floor(y)) | (y < 0) | (y >= classes)
        wanted = f"one of the labels 0, …, {classes - 1} of the {classes} outputs"
        _refuse(y, bad, wanted, "labels that count from 0, or one more output")
        return y.astype(np.int32)


class Poisson(AbstractLikelihood):
    """y is a count; the outputs are logarithms of its mean."""

    is_count: ClassVar[bool] = True

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return _per_row(y * outputs - jnp.exp(outputs) - gammaln(y + 1.0))

    def mean(self, outputs: Array) -> Array:
        return jnp.exp(outputs)

    def variance(self, outputs: Array) -> Array:
        return jnp.exp(outputs)

    def cdf(self, outputs: Array, y: Array) -> Array:
        below = gammaincc(jnp.floor(jnp.maximum(y, 0)) + 1, jnp.exp(outputs))
        return jnp.where(y < 0, 0.0, below)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        y = _like_outputs(y, outputs_shape)
        _refuse(y, (y != np.floor(y)) | (y < 0), "a count 0, 1, 2, …", "likelihood='normal'")
        return y


LIKELIHOODS: dict[str, AbstractLikelihood] = {
    "normal": Normal(),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
}


def as_likelihood(likelihood: Any) -> AbstractLikelihood:
    """The likelihood of that name, or the user's own."""
    if isinstance(likelihood, AbstractLikelihood):
        return likelihood
    form = "one of follmer.likelihoods, or your own AbstractLikelihood"
    if callable(likelihood):
        raise InputError(f"likelihood is {likelihood!r:.80}.", hint=f"{form}, made by calling it")
    return named_or_own("likelihood", likelihood, LIKELIHOODS, form)


def _per_row(terms: Array) -> Float[Array, " rows"]:
    return jnp.sum(terms, axis=tuple(range(1, terms.ndim)))


def _like_outputs(y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """y in the shape of the outputs; a last axis of length 1 is dropped."""
    y = y[..., 0] if y.shape == (*shape, 1) else y
    if y.shape != shape:
        raise InputError(
            f"y has shape {y.shape}; the network's outputs ask for {shape}.",
            cause="the network has another number of outputs than y has columns, or another "
            "likelihood was meant",
        )
    return y


def _refuse(y: np.ndarray, bad: np.ndarray, wanted: str, hint: str) -> None:
    if bad.any():
        raise InputError(
            f"y holds {y[bad][0]} in {first_place(bad)}, which is not {wanted}.", hint=hint
        )
