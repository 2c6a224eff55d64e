"""How y scatters around a network's outputs: noise, classes, counts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer.errors import InputError
from follmer.targets.counts import NegativeBinomial, Poisson
from follmer.targets.likelihood import AbstractLikelihood, like_outputs, per_row, refuse
from follmer.targets.noises import Normal, StudentT
from follmer.tools.checks import named_or_own

__all__ = [
    "LIKELIHOODS",
    "AbstractLikelihood",
    "Bernoulli",
    "Categorical",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "StudentT",
    "as_likelihood",
]


class Bernoulli(AbstractLikelihood):
    """y is 0 or 1; the outputs are logits of 1. `probabilities` holds those of 0 and of 1."""

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        return per_row(jax.nn.log_sigmoid((2 * y - 1) * outputs))

    def mean(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs)

    def variance(self, outputs: Array) -> Array:
        return jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)

    def probabilities(self, outputs: Array) -> Array:
        return jnp.stack([jax.nn.sigmoid(-outputs), jax.nn.sigmoid(outputs)], -1)

    def observed(self, y: np.ndarray, outputs_shape: tuple[int, ...]) -> np.ndarray:
        y = like_outputs(y, outputs_shape)
        refuse(y, (y != 0) & (y != 1), "a label 0 or 1", "labels -1 and 1: y=(y + 1) / 2")
        return y


class Categorical(AbstractLikelihood):
    """y is a class 0, 1, …; the outputs are logits, one per class along the last axis.

    `mean` and `variance` are those of the classes' indicators, so the mean is the probabilities.
    """

    def log_prob(self, outputs: Array, y: Array) -> Float[Array, " rows"]:
        labels = y.astype(jnp.int32)[..., None]
        return per_row(jnp.take_along_axis(jax.nn.log_softmax(outputs), labels, -1))

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
        y = like_outputs(y, outputs_shape[:-1])
        classes = outputs_shape[-1]
        bad = (y != np.floor(y)) | (y < 0) | (y >= classes)
        wanted = f"one of the labels 0, …, {classes - 1} of the {classes} outputs"
        refuse(y, bad, wanted, "labels that count from 0, or one more output")
        return y.astype(np.int32)


LIKELIHOODS: dict[str, AbstractLikelihood] = {
    "normal": Normal(),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
    "student_t": StudentT(),
    "negative_binomial": NegativeBinomial(),
}


def as_likelihood(likelihood: Any) -> AbstractLikelihood:
    """The likelihood of that name, or the user's own."""
    if isinstance(likelihood, AbstractLikelihood):
        return likelihood
    form = "one of follmer.likelihoods, or your own AbstractLikelihood"
    if callable(likelihood):
        raise InputError(f"likelihood is {likelihood!r:.80}.", hint=f"{form}, made by calling it")
    return named_or_own("likelihood", likelihood, LIKELIHOODS, form)
