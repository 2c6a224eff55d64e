"""Fitted estimators as files: JSON and arrays, the posterior's own file among them."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from follmer.errors import FileError, InputError, options_checked
from follmer.integrations.tables import Scaling
from follmer.posterior.loading import load as load_posterior
from follmer.posterior.posterior import Posterior
from follmer.targets import Target
from follmer.tools import storage

FILE_KIND = "estimator"
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
    arrays = {"offset": estimator.offset_, **packed(estimator.posterior_)}
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
    estimator.posterior_ = unpacked(arrays, estimator)
    return estimator


def packed(posterior: Posterior) -> dict[str, np.ndarray]:
    """A posterior as arrays: the rows it was fitted to, and the bytes of its own file."""
    target = posterior.target
    with tempfile.TemporaryDirectory(prefix="follmer-") as folder:
        file = Path(folder) / "posterior"
        posterior.save(file)
        content = np.frombuffer(file.read_bytes(), np.uint8)
    rows = {name: np.asarray(values) for name, values in target.data.items()}
    return {**rows, "posterior": content}


def unpacked(arrays: dict[str, np.ndarray], estimator: Any) -> Posterior:
    """The posterior that `packed` took apart, on the estimator's own target."""
    target: Target = estimator._target(arrays["x"], arrays["y"])
    with tempfile.TemporaryDirectory(prefix="follmer-") as folder:
        file = Path(folder) / "posterior"
        file.write_bytes(arrays["posterior"].tobytes())
        posterior = load_posterior(file, target)
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


def _tuple(sizes: Any) -> Any:
    return tuple(sizes) if isinstance(sizes, list) else sizes
