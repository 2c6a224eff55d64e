"""What a target's data look like from its draws: log likelihoods, replicates, names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.data import in_chunks, named_arrays
from follmer.targets.likelihoods import AbstractLikelihood
from follmer.targets.source import Labels
from follmer.targets.target import as_target
from follmer.tools.keys import KeyRows, as_keys, key_rows, named_key
from follmer.tools.programs import compiled

# Observations, over all draws, that are held at once.
_AT_ONCE = 2**18
# Halvings of a bracket: as many as single precision can tell apart.
_HALVINGS = 40


def log_likelihoods(
    target: Any, x: Float[Array, "draws dim"], *, progress: bool
) -> dict[str, Float[np.ndarray, "draws ..."]]:
    """The log likelihood of every observation at each draw, under the observed variable's name."""
    own = _own(target)
    if own.source is not None and own.source.observed():
        return jax.tree.map(np.asarray, _of_source(target, x))
    if own.source is not None or own.num_data is None:
        raise InputError(
            "the target has no data, so there is no likelihood to take apart.",
            cause="the target was built from one log density, or the model observes nothing",
            hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
        )
    name = "y" if _is_regression(own) else "log_likelihood"
    # Few enough rows that every draw's values fit.
    at_once = max(1, min(own.rows_at_once, _AT_ONCE // len(x)))
    values = in_chunks(
        lambda rows: _of_rows(target, x, rows), own.data, at_once, "likelihood", progress=progress
    )
    return {name: np.asarray(values).T}


def replicates(
    target: Any, x: Float[Array, "draws dim"], key: PRNGKeyArray, rows: Array | None = None
) -> dict[str, Float[np.ndarray, "draws ..."]]:
    """New observations, one set per draw, under the observed variable's name.

    At the data's own rows, or, of a regression, at other `rows` of x.
    """
    own = _own(target)
    key = named_key(key, "replicates")
    if own.source is not None:
        return jax.tree.map(np.asarray, own.source.replicates(*_both(target, x), key))
    if not _is_regression(own):
        raise InputError(
            "the target cannot make new observations: it does not say how they are distributed.",
            cause="a log likelihood is a function of y, not a way to draw it",
            hint="follmer.from_network, from_numpyro or from_pymc; or Target(…, predictive=…)",
        )
    keys = key_rows(key, len(x))
    chosen = own.data["x"] if rows is None else rows
    return {"y": np.asarray(_replicated_rows(target, x, keys, chosen))}


def observed_data(target: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What was observed, and what else the density was given; all data where it is not known."""
    own = _own(target)
    if own.source is not None:
        return own.source.observed(), own.source.constants()
    if own.num_data is None:
        return {}, {}
    arrays = {name: np.asarray(values) for name, values in named_arrays(own.data)}
    if not _is_regression(own):
        return arrays, {}
    return {"y": arrays.pop("y")}, arrays


def outcomes(target: Any) -> np.ndarray | None:
    """All observed numbers in a row; None where it is not known which of the data they are."""
    if target.has_locals:
        return None
    own = _own(target)
    if own.source is None and not (own.num_data and _is_regression(own)):
        return None
    found = observed_data(target)[0]
    return (
        np.concatenate([np.ravel(one).astype(float) for one in found.values()]) if found else None
    )


def labels(target: Any) -> Labels:
    """Names of axes and of places along them, where they are known."""
    own = _own(target)
    return Labels({}, {}) if own.source is None else own.source.labels()


def _is_regression(target: Any) -> bool:
    """Whether it is known which of the data is y, and how it is distributed."""
    data = target.data
    return target.predictive is not None and isinstance(data, dict) and set(data) == {"x", "y"}


def _own(target: Any) -> Any:
    """The target in its own coordinates: a Whitened one stands around another."""
    return getattr(as_target(target), "target", target)


@compiled
def _of_source(target: Any, x: Float[Array, "draws dim"]) -> dict[str, Array]:
    source = _own(target).source
    return jax.lax.map(lambda one: source.log_likelihoods(target.parameters(one)), x)


@compiled
def _of_rows(target: Any, x: Float[Array, "draws dim"], rows: PyTree) -> Float[Array, "rows draws"]:
    own = _own(target)
    to_own = (lambda one: one) if target.affine is None else target.affine
    return jax.lax.map(lambda one: own.row_log_likelihoods(to_own(one), rows), x).T


@compiled
def _both(target: Any, x: Float[Array, "draws dim"]) -> tuple[PyTree, PyTree]:
    return jax.vmap(target.parameters)(x), jax.vmap(target.constrain)(x)


@compiled
def _replicated_rows(
    target: Any, x: Float[Array, "draws dim"], keys: KeyRows, rows: Array
) -> Float[Array, "draws rows ..."]:
    predictive = _own(target).predictive

    def one(draw: tuple[Array, PRNGKeyArray]) -> Array:
        theta = target.parameters(draw[0])
        return drawn(predictive.likelihood_at(theta), predictive.outputs(theta, rows), draw[1])

    return jax.lax.map(one, (x, as_keys(keys)))


def drawn(likelihood: AbstractLikelihood, outputs: Array, key: PRNGKeyArray) -> Array:
    """One draw of y at each row of outputs, by the classes' probabilities or the inverted cdf."""
    probabilities = likelihood.probabilities(outputs)
    if probabilities is not None:
        return jax.random.categorical(key, jnp.log(probabilities), axis=-1)
    mean, sd = likelihood.mean(outputs), jnp.sqrt(likelihood.variance(outputs))
    # The open interval: the ends have no quantile.
    level = jax.random.uniform(key, mean.shape, mean.dtype, minval=1e-6, maxval=1.0 - 1e-6)
    # Cantelli's inequality brackets the quantiles of every distribution.
    low = mean - sd * jnp.sqrt((1 - level) / level) - 1.0
    high = mean + sd * jnp.sqrt(level / (1 - level)) + 1.0
    if likelihood.cdf(outputs, mean) is None:
        raise InputError(
            f"{type(likelihood).__name__} has neither probabilities nor a cdf to draw y by.",
            hint="to_datatree(…, posterior_predictive=False)",
        )

    def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        reached = jnp.asarray(likelihood.cdf(outputs, middle)) >= level
        return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))[1]
    return jnp.round(high) if likelihood.is_count else high
