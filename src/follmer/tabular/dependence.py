"""Partial dependence: what is predicted on average where one column is set to a value."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.columns.kinds import AbstractColumn, Boolean, Categorical, Date
from follmer.tabular.model import TableModel
from follmer.targets import Predictive
from follmer.tools.keys import named_key
from follmer.tools.programs import compiled

# Rows that are averaged over, draws of the posterior, and values that a column is set to.
_ROWS, _DRAWS, _VALUES = 128, 200, 21
# The band holds this share of the draws.
BAND = 0.9
# Draws whose outputs are computed at once.
_DRAWS_AT_ONCE = 16


class Dependence(NamedTuple):
    """The average prediction by the value of one column, with a band over the posterior's draws.

    For classes, an average probability for each; otherwise one curve.
    """

    column: AbstractColumn
    values: np.ndarray  # numbers, days since 1970, or labels
    mean: Float[np.ndarray, "values curves"]
    lower: Float[np.ndarray, "values curves"]
    upper: Float[np.ndarray, "values curves"]


def dependences(model: TableModel, names: Sequence[str]) -> list[Dependence]:
    """The partial dependence on each of these columns, with the same rows and draws for all."""
    key = named_key(jax.random.key(int(model.facts["seed"])), "dependence")
    posterior = model.estimator.posterior_
    draws = posterior.resample(_DRAWS, key=key)
    columns = {column.name: column for column in model.schema.columns}
    return [_dependence(model, columns[name], draws) for name in names]


def _dependence(model: TableModel, column: AbstractColumn, draws: PyTree) -> Dependence:
    place = model.schema.places[column.name]
    features = model.rows.features[:_ROWS]
    values = _values(column, features[:, place])
    blocks = column.features_of(values)
    # Always the same number of values, so that one program serves all columns.
    blocks = blocks[np.minimum(np.arange(_VALUES), len(values) - 1)]
    rows = np.tile(features, (_VALUES, 1))
    rows[:, place] = np.repeat(blocks, len(features), axis=0)
    curves = _average(model, draws, rows)[:, : len(values)]
    tail = 0.5 * (1.0 - BAND)
    lower, upper = np.quantile(curves, [tail, 1.0 - tail], axis=0)
    return Dependence(column, values, curves.mean(axis=0), lower, upper)


def _values(column: AbstractColumn, features: np.ndarray) -> np.ndarray:
    """The values to set a column to: its labels, or numbers between its usual ends."""
    if isinstance(column, Categorical):
        ranked = sorted(range(len(column.levels)), key=lambda i: -column.shares[i])
        return np.array([column.levels[i] for i in sorted(ranked[:_VALUES])], object)
    if isinstance(column, Boolean):
        return np.array([0.0, 1.0])
    start = column.first if isinstance(column, Date) else 0.0
    low, high = start + np.quantile(features[:, 0], [0.02, 0.98])
    seen = np.unique(start + features[:, 0])
    seen = seen[(seen >= low) & (seen <= high)]
    return seen if 1 < len(seen) <= _VALUES else np.linspace(low, high, _VALUES)


def _average(
    model: TableModel, draws: PyTree, rows: np.ndarray
) -> Float[np.ndarray, "draws values curves"]:
    """The mean of y over the rows of each value, for every draw, in the table's units."""
    estimator = model.estimator
    target = estimator.posterior_.target
    scaled = jnp.asarray(estimator.x_scaling_.scaled(rows), target.dtype)
    found = np.asarray(_means(target.predictive, draws, scaled, _VALUES), float)
    found = found.reshape(len(found), _VALUES, -1)
    if model.outcome.is_classes:
        # Two classes have one probability, that of the second.
        return found
    center, unit = estimator.y_scaling_
    return center + unit * found


@compiled
def _means(
    predictive: Predictive, draws: PyTree, x: Float[Array, "rows features"], values: int
) -> Float[Array, "draws values ..."]:
    def one(theta: Any) -> Array:
        means = predictive.likelihood_at(theta).mean(predictive.outputs(theta, x))
        return means.reshape(values, -1, *means.shape[1:]).mean(axis=1)

    return jax.lax.map(one, draws, batch_size=_DRAWS_AT_ONCE)
