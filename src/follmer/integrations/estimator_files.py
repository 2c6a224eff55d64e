"""Fitted estimators as files: JSON and arrays, those of the posterior among them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from follmer.errors import FileError, InputError
from follmer.integrations.tables import Scaling
from follmer.posterior.loading import restored
from follmer.posterior.posterior import Posterior
from follmer.targets import Target
from follmer.tools import storage
from follmer.tools.checks import options_checked

FILE_KIND = "fitted estimator"
# How the names of the posterior's arrays begin, and of its target's rows.
_POSTERIOR, _ROWS = "posterior_", "rows_"
_SCALINGS = ("x_scaling_", "y_scaling_")


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator to one file, whole or not at all."""
    header: dict[str, Any] = {
        "estimator": type(estimator).__name__,
        "parameters": _parameters(estimator),
        "seed": estimator.seed_,
        "num_features": estimator.n_features_in_,
        "feature_names": None,
    }
    if hasattr(estimator, "feature_names_in_"):
        header["feature_names"] = [str(name) for name in estimator.feature_names_in_]
    parts = packed(estimator.posterior_)
    header["posterior"] = parts.header
    arrays = {"offset": estimator.offset_}
    arrays |= {f"{_POSTERIOR}{name}": values for name, values in parts.arrays.items()}
    arrays |= {f"{_ROWS}{name}": values for name, values in parts.rows.items()}
    for name in _SCALINGS:
        if hasattr(estimator, name):
            arrays |= {f"{name}{i}": part for i, part in enumerate(getattr(estimator, name))}
    if hasattr(estimator, "classes_"):
        header["objects"] = estimator.classes_.dtype == object
        arrays["classes"] = _plain_labels(estimator.classes_)
    storage.write(path, FILE_KIND, header, arrays)


@options_checked
def load(path: str | Path) -> Any:
    """The fitted estimator that its `save` wrote."""
    from follmer.integrations import estimators

    path = Path(path)
    header, arrays = storage.read(path, FILE_KIND)
    kinds = {one.__name__: one for one in estimators.ESTIMATORS}
    if header["estimator"] not in kinds:
        raise FileError(f"{path} holds an estimator {header['estimator']!r} unknown here.")
    parameters = dict(header["parameters"])
    parameters["hidden_layer_sizes"] = _tuple(parameters["hidden_layer_sizes"])
    estimator = kinds[header["estimator"]](**parameters)
    estimator.seed_, estimator.n_features_in_ = header["seed"], header["num_features"]
    estimator.offset_ = arrays["offset"]
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(header["feature_names"], object)
    for name in _SCALINGS:
        if f"{name}0" in arrays:
            setattr(estimator, name, Scaling(arrays[f"{name}0"], arrays[f"{name}1"]))
    if "classes" in arrays:
        labels = arrays["classes"]
        estimator.classes_ = labels.astype(object) if header["objects"] else labels
    parts = Packed(header["posterior"], _below(arrays, _POSTERIOR), _below(arrays, _ROWS))
    estimator.posterior_ = unpacked(parts, estimator, path)
    return estimator


class Packed(NamedTuple):
    """A posterior taken apart: its settings as JSON has them, its arrays, and its target's rows."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


def packed(posterior: Posterior) -> Packed:
    """The posterior as plain numbers: JAX's own trees and functions cannot be pickled."""
    rows = {name: np.asarray(values) for name, values in posterior.target.data.items()}
    return Packed(*posterior.stored(), rows)


def unpacked(parts: Packed, estimator: Any, path: Path | None = None) -> Posterior:
    """The posterior that `packed` took apart, on the estimator's own target."""
    target: Target = estimator._target(**parts.rows)
    posterior = restored(path or Path("the pickle"), parts.header, parts.arrays, target)
    posterior.progress = bool(estimator.verbose)
    return posterior


def _parameters(estimator: Any) -> dict[str, Any]:
    """The estimator's parameters as JSON has them; a generator is left out, its seed is kept."""
    parameters = estimator.get_params(deep=False)
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    parameters["hidden_layer_sizes"] = np.asarray(parameters["hidden_layer_sizes"]).tolist()
    found = {}
    for name, value in parameters.items():
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            json.dumps(plain)
        except TypeError as error:
            raise InputError(
                f"the parameter {name}={value!r:.60} cannot be written to a file: {error}.",
                cause="it is code, or an object of yours",
                hint="pickle, or the name of a likelihood in place of one of your own",
            ) from None
        found[name] = plain
    return found


def _plain_labels(classes: np.ndarray) -> np.ndarray:
    if classes.dtype != object:
        return classes
    if not all(isinstance(label, str) for label in classes):
        raise InputError(
            "labels that are neither text nor numbers cannot be written to a file.",
            hint="pickle, or y as text or integers",
        )
    return np.array(classes.tolist(), str)


def _below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }


def _tuple(sizes: Any) -> Any:
    return tuple(sizes) if isinstance(sizes, list) else sizes
