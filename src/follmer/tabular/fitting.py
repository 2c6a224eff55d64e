"""From a table to a model: columns learned, rows held out, an estimator fitted and scored."""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from follmer import __version__
from follmer.columns import Outcome, Table, learn_outcome, learn_schema
from follmer.columns.outcome import AUTO, COUNT, target_column
from follmer.errors import InputError, optional_module
from follmer.tabular.model import Rows, TableModel, predictions
from follmer.tabular.scores import LEVELS, Baseline, Scores, learn_baseline, score
from follmer.tools.checks import fraction
from follmer.tools.keys import generator, named_key

MODELS = ("network", "linear")
# The share of rows that is held out, at least and at most so many; none of fewer than a hundred.
_SHARE, _LEAST, _MOST, _FEWEST = 0.1, 20, 1000, 100
# Rows that are kept with the model where none are held out.
_KEPT = 500
# Draws of each held-out count.
_DRAWS = 1000


def fit_table(
    table: Table,
    target: str,
    *,
    task: str = AUTO,
    model: str = "network",
    kinds: Mapping[str, str] | None = None,
    held_out: float | None = None,
    seed: int = 0,
    max_seconds: float | None = None,
    progress: bool = False,
    tell: Callable[[str], object] = lambda words: None,
) -> TableModel:
    """A model of the target column by the others, judged on rows that were held out.

    **Arguments:**

    - `task`, `kinds`: what the target and other columns are, where the cells do not say it rightly.
    - `held_out`: the share of rows that the fit does not see. By default a tenth, at least 20 and
      at most 1000 rows, and none of fewer than 100.
    - `tell`: called with a line at each step.
    """
    started = time.monotonic()
    table, remarks = _with_target(table, target)
    outcome = learn_outcome(table, target, task)
    schema, told = learn_schema(table, target=target, kinds=kinds)
    tell(f"{len(table.frame)} rows, {len(schema.columns)} columns used; {_task(outcome)}")
    features, _ = schema.encode(table)
    y = outcome.encode(table.frame[target], table.decimal)
    key = jax.random.key(seed)
    held = _held_out(outcome, y, held_out, key)
    train = np.setdiff1d(np.arange(len(y)), held)
    tell(f"fitting a {model} model to {len(train)} rows, {len(held)} are held out")
    estimator = _fitted(outcome, features[train], y[train], model, seed, max_seconds, progress)
    baseline = learn_baseline(outcome, y[train])
    unseen = Rows(features[held], y[held])
    scores = _scored(outcome, estimator, baseline, unseen, key) if len(held) else None
    kept = held if len(held) else _some(train, _KEPT, key)
    facts = {
        "file": table.path.name,
        "rows": len(y),
        "training rows": len(train),
        "held-out rows": len(held),
        "model": model,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        "follmer": __version__,
    }
    return TableModel(
        outcome=outcome,
        schema=schema,
        estimator=estimator,
        rows=Rows(features[kept], y[kept]),
        held_out=bool(len(held)),
        baseline=baseline,
        scores=scores,
        facts=facts,
        remarks=(*remarks, *told),
    )


def _with_target(table: Table, target: str) -> tuple[Table, tuple[str, ...]]:
    """The rows that have a value of the target, and remarks; all rows where none has."""
    whole = target_column(table, target).notna().to_numpy()
    if whole.all() or not whole.any():
        return table, table.remarks
    said = f"{int((~whole).sum())} rows without a value of {target!r} are left out"
    return table.rows(np.flatnonzero(whole)), (*table.remarks, said)


def _task(outcome: Outcome) -> str:
    told = f"{outcome.task} of {outcome.name!r} ({outcome.why})"
    if outcome.is_classes:
        listed = ", ".join(outcome.classes[:5]) + (", …" if len(outcome.classes) > 5 else "")
        told += f", classes {listed}"
    return told


def _held_out(outcome: Outcome, y: np.ndarray, share: float | None, key: Any) -> np.ndarray:
    """Places of the rows that the fit does not see; of every class some rows stay."""
    if share is None:
        count = 0 if len(y) < _FEWEST else int(np.clip(_SHARE * len(y), _LEAST, _MOST))
    else:
        count = round(fraction("held_out", share) * len(y))
    order = generator(key, "held out").permutation(len(y))
    held, rest = np.sort(order[:count]), order[count:]
    if outcome.is_classes:
        held = held[np.isin(y[held], y[rest])]
    if len(y) - len(held) < 3:
        raise InputError(
            f"{len(y) - len(held)} rows are left to learn from.", hint="a smaller --held-out"
        )
    return held


def _fitted(
    outcome: Outcome,
    features: np.ndarray,
    y: np.ndarray,
    model: str,
    seed: int,
    max_seconds: float | None,
    progress: bool,
) -> Any:
    """The estimator of the task; its verdict is told by the caller, so no warning is."""
    optional_module("sklearn", extra="tables", purpose="a model of a table")
    from sklearn.exceptions import ConvergenceWarning

    from follmer.sklearn import FollmerClassifier, FollmerRegressor

    options: dict[str, Any] = {"random_state": seed, "verbose": progress}
    if max_seconds is not None:
        options["fit_options"] = {"max_seconds": max_seconds}
    estimator: Any
    if outcome.is_classes:
        estimator = FollmerClassifier(model, **options)
    else:
        likelihood = "negative_binomial" if outcome.task == COUNT else "auto"
        estimator = FollmerRegressor(model, likelihood=likelihood, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, y)


def _scored(outcome: Outcome, estimator: Any, baseline: Baseline, rows: Rows, key: Any) -> Scores:
    levels = () if outcome.is_classes else LEVELS
    found = predictions(estimator, rows.features, rows.y, levels)
    draws = estimator.sample_y(rows.features, _DRAWS) if outcome.task == COUNT else None
    return score(baseline, found, rows.y, draws, named_key(key, "floor"))


def _some(places: np.ndarray, most: int, key: Any) -> np.ndarray:
    if len(places) <= most:
        return places
    return np.sort(generator(key, "kept").choice(places, most, replace=False))
