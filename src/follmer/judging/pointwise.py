"""What draws say of single data points: log likelihoods and mean outputs, some rows at a time."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.targets import Target
from follmer.targets.data import in_chunks, take
from follmer.tools.mesh import in_turns
from follmer.tools.programs import compiled

# Pairs of a draw and a row that are computed at once.
_PAIRS_AT_ONCE = 2**20
# Draws whose outputs are computed at once.
_DRAWS_AT_ONCE = 16


def pointwise_log_likelihood(
    target: Target,
    draws: Float[Array | np.ndarray, "draws dim"],
    rows: np.ndarray | None = None,
    *,
    progress: bool = True,
) -> Float[np.ndarray, "draws rows"]:
    """ln p(y_i | θ_s) of the data points at `rows` (all by default), for draws in flat coordinates.

    The draws are in the target's own unconstrained coordinates, not in whitened ones.
    """
    data = target.data if rows is None else take(target.data, np.asarray(rows))
    x = jnp.asarray(draws, target.dtype)
    found = in_chunks(
        lambda batch: _log_likelihoods(target, x, batch),
        data,
        max(1, min(_PAIRS_AT_ONCE // len(x), target.rows_at_once)),
        "log likelihoods",
        progress=progress,
    )
    return np.asarray(found, float).T


def pointwise_moments(
    target: Target, draws: Float[Array | np.ndarray, "draws dim"], rows: np.ndarray
) -> tuple[Float[np.ndarray, "draws values"], Float[np.ndarray, " values"]]:
    """For every draw the mean of y at the data points `rows`; its variance, averaged over draws.

    Several columns of y follow each other; for classes, they are indicators. The target's data must
    be those of `from_network`.
    """
    x = target.data["x"][np.asarray(rows)]
    means, variances = _moments(target, jnp.asarray(draws, target.dtype), x)
    return np.asarray(means, float).reshape(len(draws), -1), np.asarray(variances, float).ravel()


def pointwise_cdf(
    target: Target, draws: Float[Array | np.ndarray, "draws dim"], rows: np.ndarray
) -> Float[np.ndarray, "draws rows"] | None:
    """P(Y ≤ y_i | θ_s) at the data points `rows`; None unless y is one continuous number."""
    data = take(target.data, np.asarray(rows))
    found = _cdfs(target, jnp.asarray(draws, target.dtype), data)
    if found is None or found.size != len(draws) * len(rows):
        return None
    return np.asarray(found, float).reshape(len(draws), len(rows))


@compiled
def _cdfs(target: Target, draws: Float[Array, "draws dim"], data: PyTree) -> Array | None:
    predictive = target.predictive
    assert predictive is not None

    def one(place: Float[Array, " dim"]) -> Array | None:
        theta = target.parameters(place)
        likelihood = predictive.likelihood_at(theta)
        if likelihood.is_count:
            return None
        return likelihood.cdf(predictive.outputs(theta, data["x"]), data["y"])

    # `lax.map` cannot leave a remainder of draws without a value.
    has_one = jax.eval_shape(one, draws[0]) is not None
    return jax.lax.map(one, draws, batch_size=_DRAWS_AT_ONCE) if has_one else None


@compiled
def _log_likelihoods(
    target: Target, x: Float[Array, "draws dim"], batch: PyTree
) -> Float[Array, "rows draws"]:
    def one(x: Float[Array, " dim"]) -> Float[Array, " rows"]:
        return target.row_log_likelihoods(x, batch)

    return in_turns(one, x, _DRAWS_AT_ONCE).T


@compiled
def _moments(
    target: Target, draws: Float[Array, "draws dim"], x: Array
) -> tuple[Float[Array, "draws ..."], Float[Array, "..."]]:
    predictive = target.predictive
    assert predictive is not None

    def one(place: Float[Array, " dim"]) -> tuple[Array, Array]:
        theta = target.parameters(place)
        likelihood, outputs = predictive.likelihood_at(theta), predictive.outputs(theta, x)
        return likelihood.mean(outputs), likelihood.variance(outputs)

    means, variances = in_turns(one, draws, _DRAWS_AT_ONCE)
    return means, jnp.mean(variances, axis=0)
