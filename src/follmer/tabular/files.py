"""Models of tables as files: the schema as JSON, the estimator's own file, rows to judge by."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from follmer.columns import Outcome, Schema
from follmer.errors import optional_module
from follmer.tabular.model import Rows, TableModel
from follmer.tabular.scores import Baseline, Scores
from follmer.tools import storage

FILE_KIND = "table model"


def header_of(model: TableModel) -> dict[str, Any]:
    """What is told of the model without loading it."""
    return {
        "outcome": model.outcome.as_json(),
        "schema": model.schema.as_json(),
        "held_out": model.held_out,
        "baseline": model.baseline._asdict(),
        "scores": None if model.scores is None else model.scores.as_json(),
        "facts": model.facts,
        "remarks": list(model.remarks),
        "verdict": model.verdict,
        "advice": model.advice,
        "usable": model.is_usable,
    }


def save_model(model: TableModel, path: str | Path) -> None:
    """Write the model to one file, whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="follmer-") as folder:
        file = Path(folder) / "estimator"
        model.estimator.save(file)
        content = np.frombuffer(file.read_bytes(), np.uint8)
    arrays = {"estimator": content, "features": model.rows.features, "y": model.rows.y}
    storage.write(Path(path), FILE_KIND, header_of(model), arrays)


def read_header(path: str | Path) -> dict[str, Any]:
    """The `header_of` the model in a file."""
    return storage.read(Path(path), FILE_KIND)[0]


def load_model(path: str | Path, *, progress: bool = False) -> TableModel:
    """The model that `save_model` wrote; with `progress`, long predictions show a bar."""
    header, arrays = storage.read(Path(path), FILE_KIND)
    optional_module("sklearn", extra="tables", purpose="a model of a table")
    from follmer.sklearn import load

    with tempfile.TemporaryDirectory(prefix="follmer-") as folder:
        file = Path(folder) / "estimator"
        file.write_bytes(arrays["estimator"].tobytes())
        estimator = load(file)
    estimator.posterior_.progress = progress
    baseline = header["baseline"]
    return TableModel(
        outcome=Outcome.from_json(header["outcome"]),
        schema=Schema.from_json(header["schema"]),
        estimator=estimator,
        rows=Rows(arrays["features"], arrays["y"]),
        held_out=header["held_out"],
        baseline=Baseline(baseline["task"], tuple(baseline["values"])),
        scores=None if header["scores"] is None else Scores.from_json(header["scores"]),
        facts=header["facts"],
        remarks=tuple(header["remarks"]),
    )
