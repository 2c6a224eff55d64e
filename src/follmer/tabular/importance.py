"""How much a column matters: what its cells are worth for the prediction of kept rows."""

from typing import Any, NamedTuple

import jax
import numpy as np

from follmer.tabular.model import TableModel, predictions
from follmer.tools.keys import generator

# Rows that are predicted, and times that each column is shuffled among them.
_ROWS, _SHUFFLES = 400, 4


class Importance(NamedTuple):
    """The fall of ln p(y), in nats per row, where a column's cells are shuffled among rows."""

    name: str
    fall: float
    sd: float  # over shuffles


def importances(model: TableModel) -> list[Importance]:
    """Every column's, the one that matters most first."""
    rows = model.rows
    features, y = rows.features[:_ROWS], rows.y[:_ROWS]
    rng = generator(jax.random.key(int(model.facts["seed"])), "shuffles")
    # Every call has the same number of rows, so that one program serves all.
    base = _densities(model, [features] * _SHUFFLES, y)[0]
    found = []
    for name, place in model.schema.places.items():
        shuffled = [_shuffled(features, place, rng) for _ in range(_SHUFFLES)]
        falls = base - _densities(model, shuffled, y)
        found.append(Importance(name, float(falls.mean()), float(falls.std(ddof=1))))
    return sorted(found, key=lambda one: -one.fall)


def _shuffled(features: np.ndarray, place: slice, rng: np.random.Generator) -> np.ndarray:
    changed = features.copy()
    changed[:, place] = features[rng.permutation(len(features)), place]
    return changed


def _densities(model: TableModel, versions: list[np.ndarray], y: np.ndarray) -> Any:
    """The mean ln p(y) of each version of the rows."""
    stacked = np.concatenate(versions)
    found = predictions(model.estimator, stacked, np.tile(y, len(versions)))
    return found.log_density.reshape(len(versions), -1).mean(axis=1)
