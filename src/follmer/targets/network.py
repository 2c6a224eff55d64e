"""A neural network and its data as a target."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.targets.convolutions import fast_on_cpu
from follmer.targets.likelihoods import (
    AbstractLikelihood,
    Bernoulli,
    Categorical,
    as_likelihood,
)
from follmer.targets.predictive import Predictive, as_rows
from follmer.targets.priors import Prior, as_prior
from follmer.targets.target import Target
from follmer.tools.checks import options_checked


@options_checked
def from_network(
    net: Any,
    *,
    data: tuple[Any, Any],
    likelihood: str | AbstractLikelihood,
    prior: str | Prior = "normal",
    params: PyTree = None,
) -> Target:
    """The posterior of a network's parameters given data; `Posterior.predict` works on it.

    **Arguments:**

    - `net`: an Equinox module, which acts on one row of x; a Flax NNX module, which acts on a
      batch of rows; or a function `(params, x)` of a batch of rows, together with `params`.
      Dropout and batch statistics of modules are switched to inference. Convolutions are computed
      as matrix products on a CPU (`follmer.targets.convolutions`).
    - `data`: a pair (x, y) of arrays with one row per data point. Neither is standardised.
    - `likelihood`: "normal" (with inferred noise), "student_t", "bernoulli", "categorical",
      "poisson", "negative_binomial", or one of `follmer.likelihoods`: `Normal(sd="per_row")` learns
      a noise for every row from a second output. Outputs of one column are taken as one number per
      row.
    - `prior`: "normal" (of sd 1), "laplace" (of scale 1), one of `follmer.priors`, or a function of
      the parameters that returns their log density.

    Draws are trees like the parameters: `eqx.filter(net, eqx.is_inexact_array)` for an Equinox
    module, so that `eqx.combine(draw, net)` is the network of one draw; the State of all `Param`s
    for an NNX module, as `nnx.update(net, draw)` takes it; `params` for a function. Where the noise
    is inferred they are {"net": that tree, "noise_sd": a number}, and likewise for what else a
    likelihood leaves unknown.
    """
    network = _network(net, params)
    likelihood, prior = as_likelihood(likelihood), as_prior(prior)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(f"data is {type(data).__name__}, not a pair.", hint="data=(x, y)")
    dtype = jnp.result_type(*jax.tree.leaves(network.parameters))
    x, y = (as_rows(name, values, dtype) for name, values in zip("xy", data, strict=True))
    likelihood = likelihood.for_data(y)
    fast = fast_on_cpu(network.apply, network.parameters, x.shape[1:], x.dtype)
    network = network._replace(apply=fast)
    predictive, like = _predictive(network, likelihood, x.shape[1:])
    if len(x) == len(y) > 0:  # else Target says what is wrong
        y = likelihood.observed(y, predictive.outputs_shape(like, x))
        _check_classes(likelihood, y)
    unknown = likelihood.unknown
    return Target(
        like=like,
        constraints=None if unknown is None else _positive(unknown),
        log_prior=_LogPrior(prior, None if unknown is None else likelihood),
        log_likelihood=_LogLikelihood(predictive),
        data={"x": x, "y": y},
        predictive=predictive,
    )


# Modules instead of closures: two targets made of equal networks share what is compiled.
class _LogPrior(eqx.Module):
    prior: Prior
    likelihood: AbstractLikelihood | None  # where it has an unknown parameter of its own

    def __call__(self, theta: PyTree) -> Float[Array, ""]:
        if self.likelihood is None:
            return self.prior(theta)
        unknown = theta[self.likelihood.unknown]
        return self.prior(theta["net"]) + self.likelihood.log_prior(unknown)


class _LogLikelihood(eqx.Module):
    predictive: Predictive

    def __call__(self, theta: PyTree, batch: PyTree) -> Float[Array, " rows"]:
        outputs = self.predictive.outputs(theta, batch["x"])
        return self.predictive.likelihood_at(theta).log_prob(outputs, batch["y"])


class _EquinoxApply(eqx.Module):
    rest: PyTree  # of the network, beside its parameters

    def __call__(self, params: PyTree, x: Array) -> Array:
        return jax.vmap(eqx.combine(params, self.rest))(x)


class _NNXApply(eqx.Module):
    definition: Any = eqx.field(static=True)
    rest: PyTree

    def __call__(self, params: PyTree, x: Array) -> Array:
        from flax import nnx

        module = nnx.merge(self.definition, params, *self.rest)
        module.eval()
        return module(x)


class _Outputs(eqx.Module):
    apply: Callable[[PyTree, Array], Array]
    beside_noise: bool = eqx.field(static=True)

    def __call__(self, theta: PyTree, x: Array) -> Array:
        values = self.apply(theta["net"] if self.beside_noise else theta, x)
        # One column is one number per row, as y has it.
        return values[:, 0] if getattr(values, "shape", ())[1:] == (1,) else values


class _Given(eqx.Module):
    likelihood: AbstractLikelihood

    def __call__(self, theta: PyTree) -> AbstractLikelihood:
        return self.likelihood.given(theta[self.likelihood.unknown])


class _Network(NamedTuple):
    parameters: PyTree
    apply: Callable[[PyTree, Array], Array]  # on a batch of rows


def _network(net: Any, params: PyTree) -> _Network:
    kind = type(net)
    is_nnx = any(base.__module__.startswith("flax.nnx") for base in kind.__mro__)
    if params is None and isinstance(net, eqx.Module):
        network = _equinox(net)
    elif params is None and is_nnx:
        network = _nnx(net)
    elif callable(net) and params is not None:
        network = _Network(jax.tree.map(jnp.asarray, params), net)
    else:
        raise InputError(
            f"net is {kind.__name__}"
            + (", given without params." if callable(net) else ", not a network."),
            cause="functions, and modules of other libraries, do not carry their parameters",
            hint="an Equinox or Flax NNX module, or a function (params, x) -> outputs with "
            "params=…; for Flax Linen from_network(net.apply, params=net.init(key, x), …)",
        )
    if not jax.tree.leaves(network.parameters):
        raise InputError(f"the network {kind.__name__} has no parameters to sample.")
    return network


def _equinox(net: eqx.Module) -> _Network:
    parameters, rest = eqx.partition(eqx.nn.inference_mode(net), eqx.is_inexact_array)
    return _Network(parameters, _EquinoxApply(rest))


def _nnx(net: Any) -> _Network:
    from flax import nnx

    definition, parameters, *rest = nnx.split(net, nnx.Param, ...)
    return _Network(parameters, _NNXApply(definition, rest))


def _predictive(
    network: _Network, likelihood: AbstractLikelihood, row_shape: tuple[int, ...]
) -> tuple[Predictive, PyTree]:
    """The predictive and the tree of its parameters, noise included."""
    hidden = sum(jnp.ndim(leaf) > 1 for leaf in jax.tree.leaves(network.parameters)) > 1
    if likelihood.unknown is None:
        outputs = _Outputs(network.apply, beside_noise=False)
        return Predictive(outputs, likelihood, row_shape, hidden), network.parameters
    dtype = jnp.result_type(*jax.tree.leaves(network.parameters))
    like = {"net": network.parameters, likelihood.unknown: jnp.ones((), dtype)}
    outputs = _Outputs(network.apply, beside_noise=True)
    return Predictive(outputs, _Given(likelihood), row_shape, hidden), like


def _positive(name: str) -> dict[str, Any]:
    from numpyro.distributions import constraints

    return {name: constraints.positive}


def _check_classes(likelihood: AbstractLikelihood, y: np.ndarray) -> None:
    if isinstance(likelihood, Bernoulli | Categorical) and np.all(y == y.flat[0]):
        raise InputError(
            f"y holds one class only: every label is {y.flat[0]}.",
            cause="the rows were sorted by class before a split, or the labels were lost",
            hint="rows of at least two classes",
        )
