"""A table of numbers as a target: columns scaled, a network of plain layers, how y scatters."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer.errors import InputError, closest
from follmer.targets import Target, from_network, likelihoods
from follmer.targets.likelihoods import LIKELIHOODS, AbstractLikelihood
from follmer.targets.priors import Normal, UnknownScale
from follmer.tools.checks import positive_int

MODELS = ("network", "linear")
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
# Around this lies the prior standard deviation of a linear model's weights for classes, where data
# tell it: 2.5 for columns of standard deviation .5 (Gelman et al. 2008, arXiv:0901.4011), so half
# of it here.
UNKNOWN_SCALE = 1.25
# What y of a regression may be like, by name. A network's default has outliers and a width for each
# row: of the six UCI sets it is better than a normal noise for each row on five, by .03 to .27 in
# log predictive density (splits 0 to 4, docs/benchmarks.md).
NOISES: dict[str, AbstractLikelihood] = {
    "normal": LIKELIHOODS["normal"],
    "normal_per_row": likelihoods.Normal(sd="per_row"),
    "student_t": LIKELIHOODS["student_t"],
    "student_t_per_row": likelihoods.StudentT(scale="per_row"),
    "poisson": LIKELIHOODS["poisson"],
    "negative_binomial": LIKELIHOODS["negative_binomial"],
}


class Scaling(NamedTuple):
    """Where the values of columns lie, and the unit they are measured in."""

    center: Float[np.ndarray, "..."]
    unit: Float[np.ndarray, "..."]

    def scaled(self, values: np.ndarray) -> np.ndarray:
        return (values - self.center) / self.unit


def scaling_of(values: np.ndarray) -> Scaling:
    """Means and standard deviations along the first axis; constant columns keep their unit."""
    values = np.asarray(values, float)
    center, spread = values.mean(axis=0), values.std(axis=0)
    # Rounding leaves a constant column a spread of its own.
    varies = spread > 1e-12 * np.abs(center)
    return Scaling(np.asarray(center), np.where(varies, spread, 1.0))


class Form(NamedTuple):
    """What a network looks like beside its inputs and outputs."""

    hidden: tuple[int, ...]
    activation: str
    prior_scale: float | None  # of all weights; None where data tell it


def as_form(model: Any, hidden: Any, activation: Any, prior_scale: float | None) -> Form:
    """The form of the network; an error where something in it cannot be."""
    _check_name("model", model, MODELS)
    _check_name("activation", activation, ACTIVATIONS)
    sizes = [hidden] if not isinstance(hidden, Sequence | np.ndarray) else hidden
    layers = tuple(positive_int("each of hidden_layer_sizes", size) for size in sizes)
    if model == "network" and not layers:
        raise InputError(
            "hidden_layer_sizes is empty, so there is no network.", hint="model='linear'"
        )
    return Form(layers if model == "network" else (), activation, prior_scale)


def as_noise(likelihood: Any, form: Form) -> AbstractLikelihood:
    """The likelihood of a regression, by its name or the user's own; "auto" goes by the model."""
    if isinstance(likelihood, AbstractLikelihood):
        return likelihood
    usual = "student_t_per_row" if form.hidden else "normal"
    name = usual if likelihood == "auto" else likelihood
    _check_name("likelihood", name, ("auto", *NOISES))
    return NOISES[name]


def is_per_row(likelihood: AbstractLikelihood) -> bool:
    """Whether the network has a second output, for the noise of each row."""
    width = getattr(likelihood, "sd", None), getattr(likelihood, "scale", None)
    return "per_row" in [one for one in width if isinstance(one, str)]


def table_target(
    x: np.ndarray,
    y: np.ndarray,
    form: Form,
    likelihood: AbstractLikelihood,
    offset: Float[np.ndarray, " outputs"],
) -> Target:
    """The posterior of a network on scaled rows; its outputs are around `offset` beforehand."""
    sizes = [x.shape[1], *form.hidden, len(offset)]
    # The values do not matter, only the shapes.
    layers = [(jnp.zeros((ins, outs)), jnp.zeros(outs)) for ins, outs in itertools.pairwise(sizes)]
    params: dict[str, Any] = {"layers": layers}
    if form.hidden:
        params["direct"] = jnp.zeros((sizes[0], sizes[-1]))
    # Arrays, so that other numbers compile nothing.
    known = UNKNOWN_SCALE if form.prior_scale is None else form.prior_scale
    start, scale = (jnp.asarray(one, jnp.result_type(float)) for one in (offset, known))
    net = _Layers(ACTIVATIONS[form.activation], start)
    prior = UnknownScale(scale) if form.prior_scale is None else Normal(scale)
    return from_network(net, params=params, data=(x, y), likelihood=likelihood, prior=prior)


def log_shares(counts: np.ndarray) -> Float[np.ndarray, " outputs"]:
    """The logits of classes by how often each was seen: one for two classes, else one each."""
    logs = np.log(counts / counts.sum())
    return logs[1:] - logs[0] if len(logs) == 2 else logs - logs.mean()


def log_mean(y: np.ndarray) -> Float[np.ndarray, " outputs"]:
    """The logarithm of the mean count; half a count where none was seen."""
    return np.array([math.log(max(float(np.mean(y)), 0.5 / len(y)))])


class _Layers(eqx.Module):
    """Fully connected layers, and weights that lead from the inputs directly to the outputs.

    What is linear need not be pieced together by the layers: with direct weights the log predictive
    density of boston, diabetes and energy rose by .01 to .07, and that of breast_cancer, concrete
    and wine changed by less than .003 (one or two splits of each, chains of 1500 steps).
    """

    activation: Callable[[Array], Array]
    offset: Float[Array, " outputs"]

    def __call__(
        self, params: dict[str, Any], x: Float[Array, "rows inputs"]
    ) -> Float[Array, "rows outputs"]:
        *hidden, (weights, biases) = params["layers"]
        inner = x
        for own_weights, own_biases in hidden:
            inner = self.activation(inner @ own_weights + own_biases)
        outputs = inner @ weights + biases + self.offset
        return outputs + x @ params["direct"] if hidden else outputs


def _check_name(what: str, name: Any, options: Any) -> None:
    if not isinstance(name, str) or name not in options:
        raise InputError(f"{what}={name!r} is unknown.", hint=closest(str(name), options))
