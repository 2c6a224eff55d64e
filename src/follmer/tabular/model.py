"""A fitted model of a table, and what it predicts."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from follmer.columns import Outcome, Schema, Table
from follmer.errors import InputError
from follmer.integrations.estimator_predictions import predicted
from follmer.posterior.prediction import Prediction
from follmer.tabular.scores import Baseline, Scores
from follmer.tools.checks import fraction
from follmer.tools.keys import named_key

if TYPE_CHECKING:
    import pandas


class Rows(NamedTuple):
    """Rows of features, with what came true."""

    features: Float[np.ndarray, "rows features"]
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A model of one column of a table by the others."""

    outcome: Outcome
    schema: Schema
    estimator: Any  # one of follmer.sklearn
    rows: Rows  # held out of the fit; training rows where none were
    held_out: bool
    baseline: Baseline
    scores: Scores | None  # on held-out rows
    facts: dict[str, Any]  # where it comes from: file, rows, model, seed, seconds, versions
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        judged = self.estimator.posterior_.judgement
        return "no proof of quality" if judged is None else str(judged.name)

    @property
    def advice(self) -> str:
        judged = self.estimator.posterior_.judgement
        return "nothing was audited" if judged is None else str(judged.advice)

    @property
    def is_usable(self) -> bool:
        """Whether the verdict lets the predictions be used."""
        judged = self.estimator.posterior_.judgement
        return judged is not None and bool(judged.verdict.is_usable)

    def predict(
        self, table: Table, *, level: float = 0.9
    ) -> "tuple[pandas.DataFrame, tuple[str, ...]]":
        """A row of predictions for each row of the table, in its order, and remarks.

        Numbers: mean, sd, and the bounds of the central interval of that level. Classes: the most
        probable one, and the probability of each.
        """
        import pandas

        if not 0 < fraction("level", level) < 1:
            raise InputError(f"level must be a number between 0 and 1, not {level!r}.")
        features, remarks = self.schema.encode(table)
        strangers = self.schema.strangers(table, but=self.outcome.name)
        if strangers:
            remarks += (f"columns that the model does not know: {', '.join(strangers)}",)
        if self.outcome.is_classes:
            found = predictions(self.estimator, features)
            likeliest = np.array(self.outcome.classes)[found.probabilities.argmax(axis=1)]
            columns = {
                f"p_{name}": p
                for name, p in zip(self.outcome.classes, found.probabilities.T, strict=True)
            }
            return pandas.DataFrame({"prediction": likeliest, **columns}), remarks
        tail = 0.5 * (1.0 - level)
        found = predictions(self.estimator, features, levels=(tail, 1.0 - tail))
        lower, upper = found.quantiles.T
        columns = {"mean": found.mean, "sd": found.sd, "lower": lower, "upper": upper}
        return pandas.DataFrame(columns), remarks


class Predicted(NamedTuple):
    """A prediction in the units of the table; what does not apply is empty."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: Float[np.ndarray, "rows levels"]
    probabilities: Float[np.ndarray, "rows classes"]
    log_density: Float[np.ndarray, " rows"]


def predictions(
    estimator: Any,
    features: Float[np.ndarray, "rows features"],
    y: np.ndarray | None = None,
    levels: tuple[float, ...] = (),
) -> Predicted:
    """All that the estimator predicts of rows, in one pass."""
    nothing = np.zeros((len(features), 0))
    center, unit = getattr(estimator, "y_scaling_", (0.0, 1.0))
    found: Prediction = predicted(
        estimator.posterior_,
        estimator.x_scaling_.scaled(features),
        None if y is None else (y - center) / unit,
        levels,
        estimator.num_draws,
        named_key(jax.random.key(estimator.seed_), "predictions"),
    )
    quantiles, probabilities = found.quantiles, found.probabilities
    density = found.log_predictive_density
    return Predicted(
        center + unit * np.asarray(found.mean),
        unit * np.asarray(found.sd),
        nothing if quantiles is None else center + unit * np.asarray(quantiles),
        nothing if probabilities is None else _normalised(np.asarray(probabilities)),
        np.zeros(0) if density is None else np.asarray(density) - np.log(unit),
    )


def _normalised(probabilities: np.ndarray) -> np.ndarray:
    return probabilities / probabilities.sum(axis=1, keepdims=True)
