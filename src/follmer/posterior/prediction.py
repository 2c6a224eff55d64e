"""Predictions at new rows: the likelihood averaged over draws, a block of rows at a time."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.judging.calibration import log_sharpening, pool_levels, powered
from follmer.targets import Predictive, Target
from follmer.targets.predictive import as_rows
from follmer.tools.checks import fraction, positive_int
from follmer.tools.mesh import AXES, over_all, width
from follmer.tools.programs import compiled
from follmer.tools.progress import Bar

# Below this many rows at a time, several draws are evaluated together.
_ROWS_AT_ONCE = 256
# Rounding may keep a bracket from closing: so many halvings are enough for any.
_MAX_HALVINGS = 40


class Prediction(NamedTuple):
    """The posterior predictive distribution of y, row by row.

    `mean` and `sd` are those of y itself, noise included; for classes, of their indicators.
    `quantiles` are those of the mixture over draws, (levels, rows, …), and None for classes;
    `probabilities` has the classes along its last axis, and is None without classes. Where y was
    given, `log_predictive_density` is ln of the draws' mean likelihood of each row and
    `gibbs_log_likelihood` the draws' mean log likelihood, which is never larger. Of a network,
    quantiles and the log predictive density are calibrated by rows left out, as `predict` says.
    """

    mean: Float[Array, "rows ..."]
    sd: Float[Array, "rows ..."]
    quantiles: Float[Array, "levels rows ..."] | None
    probabilities: Float[Array, "rows ... classes"] | None
    log_predictive_density: Float[Array, " rows"] | None
    gibbs_log_likelihood: Float[Array, " rows"] | None


class Question(NamedTuple):
    """What is asked, checked against the target."""

    predictive: Predictive
    x: np.ndarray
    y: np.ndarray | None
    levels: Float[np.ndarray, " levels"]
    is_count: bool
    batch_size: int
    sharpness: Float[np.ndarray, ""] | None = None  # of the pool of draws; None: as it is

    def calibrated(self, sharpness: float) -> "Question":
        """What is asked of the sharpened pool, in terms of the pool."""
        if sharpness == 1.0:
            return self
        levels = pool_levels(self.levels, sharpness).astype(self.levels.dtype)
        return self._replace(levels=levels, sharpness=np.asarray(sharpness, self.levels.dtype))


def as_question(target: Target, x: Any, y: Any, quantiles: Any, batch_size: Any) -> Question:
    """Raise InputError unless the target can answer, before any draw is made."""
    predictive = target.predictive
    if predictive is None:
        raise InputError(
            "this target cannot predict: it does not say how y is distributed at new rows x.",
            cause="it was not built by from_network",
            hint="follmer.from_network(net, data=(x, y), likelihood=…), or "
            "Target(…, predictive=follmer.Predictive(outputs=…, likelihood=…))",
        )
    x = as_rows("x", x, target.dtype)
    if len(x) == 0:
        raise InputError("x has no rows to predict at.")
    flat = jax.ShapeDtypeStruct((target.dim,), target.dtype)
    theta = jax.eval_shape(target.space.constrain, flat)
    outputs_shape = predictive.outputs_shape(theta, x)
    likelihood = eqx.filter_eval_shape(predictive.likelihood_at, theta)
    if y is not None:
        y = likelihood.observed(as_rows("y", y, target.dtype), outputs_shape)
    size = positive_int("batch_size", batch_size)
    return Question(predictive, x, y, _levels(quantiles, target.dtype), likelihood.is_count, size)


def answer(
    question: Question, thetas: PyTree, log_weights: Float[Array, " draws"], *, progress: bool
) -> Prediction:
    """The prediction from draws of the parameters and their normalised log weights."""
    num_rows = len(question.x)
    at_once = width(*AXES) * question.batch_size
    block = int(np.clip(at_once // len(log_weights), 1, num_rows))
    parts = []
    with Bar(num_rows, visible=progress, name="predicting", unit="row", late=True) as bar:
        for start in range(0, num_rows, block):
            # Blocks of one shape compile once: the last is filled up by its last row.
            chosen = np.minimum(np.arange(start, start + block), num_rows - 1)
            rows = question._replace(
                x=question.x[chosen], y=None if question.y is None else question.y[chosen]
            )
            kept = min(block, num_rows - start)
            part = _answer_at_once(rows, thetas, log_weights)
            parts.append(jax.tree.map(lambda values, n=kept: np.asarray(values)[:n], part))
            bar.advance(kept)
    whole = jax.tree.map(lambda *pieces: jnp.asarray(np.concatenate(pieces)), *parts)
    if whole.quantiles is None:
        return whole
    return whole._replace(quantiles=jnp.moveaxis(whole.quantiles, 1, 0))


@compiled
def _answer_at_once(
    question: Question, thetas: PyTree, log_weights: Float[Array, " draws"]
) -> Prediction:
    """All rows together, with quantiles along the second axis."""
    predictive, _, y, levels, is_count, _, sharpness = question
    x, y = over_all((jnp.asarray(question.x), y if y is None else jnp.asarray(y)))
    at_once = max(1, _ROWS_AT_ONCE // len(x))
    outputs = jax.lax.map(lambda theta: predictive.outputs(theta, x), thetas, batch_size=at_once)

    def each(method: str, *arguments: Any) -> Any:
        def one(theta: PyTree, outputs: Array) -> Array | None:
            return getattr(predictive.likelihood_at(theta), method)(outputs, *arguments)

        return jax.vmap(one)(thetas, outputs)

    def average(values: Any) -> Any:
        return None if values is None else jnp.tensordot(jnp.exp(log_weights), values, 1)

    def cdf(values: Array) -> Array:
        return average(each("cdf", values))

    means = each("mean")
    mean = average(means)
    # The law of total variance: noise, and what the draws disagree in.
    sd = jnp.sqrt(average(each("variance") + (means - mean) ** 2))
    quantiles = None
    if len(levels) and each("cdf", mean) is not None:
        found = [_quantile(cdf, mean, sd, level, is_count) for level in jnp.asarray(levels)]
        quantiles = jnp.stack(found, 1)
    density = gibbs = None
    if y is not None:
        log_prob = each("log_prob", y)
        density, gibbs = logsumexp(log_weights[:, None] + log_prob, 0), average(log_prob)
    probabilities = average(each("probabilities"))
    if sharpness is not None:
        probabilities, density = _sharpened(
            probabilities, density, lambda: cdf(jnp.asarray(y)), jnp.asarray(sharpness)
        )
    return Prediction(mean, sd, quantiles, probabilities, density, gibbs)


def _sharpened(
    probabilities: Float[Array, "rows classes"] | None,
    density: Float[Array, " rows"] | None,
    own: Callable[[], Array],
    sharpness: Float[Array, ""],
) -> tuple[Float[Array, "rows classes"] | None, Float[Array, " rows"] | None]:
    """The pool's class probabilities and log density, sharpened; `own` is the pool's cdf at y."""
    if probabilities is None:
        return None, None if density is None else density + log_sharpening(own(), sharpness)
    if density is not None:
        density = sharpness * density - jnp.log(jnp.sum(probabilities**sharpness, axis=-1))
    return powered(probabilities, sharpness), density


def _quantile(
    cdf: Callable[[Array], Array], mean: Array, sd: Array, level: Array, is_count: bool
) -> Array:
    """The smallest value at which the cdf reaches the level, by bisection from above."""
    # Cantelli's inequality brackets the quantiles of every distribution; a little is for rounding.
    low = mean - sd * (jnp.sqrt((1 - level) / level) + 1e-3)
    high = mean + sd * (jnp.sqrt(level / (1 - level)) + 1e-3)
    if is_count:
        low, high = jnp.floor(low) - 1, jnp.ceil(high)
    resolution = 1.0 if is_count else 1e-6 * sd

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        halvings, low, high = state
        return (halvings < _MAX_HALVINGS) & jnp.any(high - low > resolution)

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        halvings, low, high = state
        middle = jnp.floor(0.5 * (low + high)) if is_count else 0.5 * (low + high)
        reached = cdf(middle) >= level
        return halvings + 1, jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    return jax.lax.while_loop(unfinished, halve, (jnp.zeros((), jnp.int32), low, high))[2]


def _levels(quantiles: Any, dtype: Any) -> Float[np.ndarray, " levels"]:
    if not isinstance(quantiles, Sequence | np.ndarray) or not all(
        fraction("each of quantiles", level) > 0 for level in quantiles
    ):
        raise InputError(
            f"quantiles must be a list of numbers between 0 and 1, not {quantiles!r}.",
            hint="quantiles=(0.05, 0.5, 0.95), or () for none",
        )
    return np.asarray(quantiles, dtype)
