"""Reading a saved posterior back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from follmer.errors import FileError, InputError, options_checked
from follmer.judging.diagnostics import as_opinion
from follmer.nsfs import NSFS
from follmer.paths import Drift, Grid
from follmer.posterior.heat_semigroup import HeatSemigroupSampler
from follmer.posterior.posterior import FILE_KIND, Posterior
from follmer.posterior.samplers import AbstractSampler, Flow, StoredDraws
from follmer.posterior.structured import StructuredFlow, flow_of
from follmer.process import SHARED, Process
from follmer.targets import Affine, StructuredTarget, Target, as_target
from follmer.tools import storage
from follmer.tools.trees import from_arrays


@options_checked
def load(
    path: str | Path,
    target: Target | StructuredTarget,
    *,
    drift: Drift | None = None,
    grid: Grid | None = None,
    reference_drift: Drift | None = None,
) -> Posterior:
    """The posterior that `Posterior.save` wrote, on the same target.

    A drift or grid of your own is code and not in the file: pass it again. So is a drift of your
    own that the reference was made with.
    """
    path = Path(path)
    if not isinstance(target, StructuredTarget):
        target = as_target(target)
    header, arrays = storage.read(path, FILE_KIND)
    if header["space"] != target.space.describe():
        raise FileError(
            f"{path} was saved for another target: its parameters are {header['space']}, "
            f"this target's {target.space.describe()}.",
            hint="the target that was fitted, with the same `like` and constraints",
        )
    if header["sampler"] not in _REBUILD:
        raise FileError(f"{path} holds a sampler {header['sampler']!r} unknown to this follmer.")
    settings = header["settings"]
    if settings.get("reference"):
        settings["reference_drift"] = settings["reference"]["drift"]
    own = {"drift": drift, "grid": grid, "reference_drift": reference_drift}
    for name, value in own.items():
        if settings.get(name) == "custom" and value is None:
            raise FileError(
                f"{path} was saved with a {name} of your own, which is code and not in the file.",
                hint=f"follmer.load(path, target, {name}=…)",
            )
        if value is not None and settings.get(name) != "custom":
            raise InputError(
                f"{path} was not saved with a {name} of your own.",
                hint=f"follmer.load(path, target) without {name}=",
            )
        if value is not None:
            settings[name] = value
    target = target.whitened(_affine(target, arrays))
    sampler = _REBUILD[header["sampler"]](target, settings, arrays)
    prefix = "history_"
    history = {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
    second = header["second_opinion"]
    return Posterior(
        target,
        sampler,
        history,
        tuple(header["notes"]),
        second and as_opinion(second),
        header["gradient_evaluations"],
    )


def _affine(target: Target | StructuredTarget, arrays: dict[str, np.ndarray]) -> Affine | None:
    """The map to whitened coordinates that the file holds, if any."""
    parts = [arrays[name] for name in sorted(arrays) if name.startswith("affine")]
    if not parts:
        return None
    return Affine(*(jnp.asarray(part, target.dtype) for part in parts))


def _rebuild_flow(
    target: Target | StructuredTarget, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> Flow | StructuredFlow:
    reference, described = None, settings.get("reference")
    if described is not None:
        own = {"drift": settings["reference_drift"], "grid": settings["grid"]}
        prior = as_target(target).prior
        reference = _process(prior, described | own, arrays, "reference", None)
    process = _process(target, settings, arrays, "parameter", reference)
    return flow_of(process.algorithm, process.parameters)


def _process(
    target: Target | StructuredTarget,
    settings: dict[str, Any],
    arrays: dict[str, np.ndarray],
    prefix: str,
    reference: Process | None,
) -> Process:
    # What only training needs is left at its default.
    kept = {name: settings[name] for name in ("drift", "drift_options", *SHARED)}
    algorithm = NSFS(target, reference=reference, **kept)
    like = algorithm.init(jax.random.key(0)).parameters
    return Process(algorithm, from_arrays(like, arrays, prefix))


def _rebuild_chains(
    target: Target, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> StoredDraws:
    draws = arrays["draws"]
    like = np.zeros((*draws.shape[:2], target.dim), target.dtype)
    return StoredDraws(np.asarray(from_arrays(like, {"draws0": draws}, "draws")), **settings)


_REBUILD: dict[str, Callable[[Any, dict[str, Any], dict[str, np.ndarray]], AbstractSampler]] = {
    "nsfs": _rebuild_flow,
    "structured": _rebuild_flow,
    "chains": _rebuild_chains,
    "mc_sfs": lambda target, settings, _: HeatSemigroupSampler(target, **settings),
}
