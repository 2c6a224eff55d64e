"""Reading a saved posterior back."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from follmer.drifts import GaussianMixture, ProductMixture
from follmer.errors import FileError, InputError
from follmer.judging import Judgement, Verdict, as_audit
from follmer.paths import SHARED, Drift, Grid, PriorProcess
from follmer.posterior.along_chains import rebuild_along_chains
from follmer.posterior.heat_semigroup import HeatSemigroupSampler
from follmer.posterior.posterior import FILE_KIND, Attempt, Posterior
from follmer.posterior.samplers import AbstractSampler, Flow, MixtureFlow, StoredDraws
from follmer.posterior.structured import StructuredFlow, flow_of
from follmer.process import Process
from follmer.targets import AbstractTarget, Affine, as_any_target, as_target, data_digest
from follmer.tools import storage
from follmer.tools.checks import options_checked
from follmer.tools.trees import from_arrays

# What may be the user's own code, which no file holds.
_OWN_CODE = ("drift", "grid", "reference_drift")


@options_checked
def load(
    path: str | Path,
    target: AbstractTarget,
    *,
    drift: Drift | None = None,
    grid: Grid | None = None,
    reference_drift: Drift | None = None,
) -> Posterior:
    """The posterior that `Posterior.save` wrote, on the same target.

    A drift or grid of your own is code and not in the file: pass it again. So is a drift of your
    own that the reference was made with.
    """
    own = {"drift": drift, "grid": grid, "reference_drift": reference_drift}
    return restored(Path(path), *storage.read(Path(path), FILE_KIND), as_any_target(target), own)


def restored(
    path: Path,
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    target: AbstractTarget,
    own: Mapping[str, Any] | None = None,
) -> Posterior:
    """The posterior that `Posterior.stored` took apart; `own` is the user's own code by name."""
    if header["space"] != target.describe():
        raise FileError(
            f"{path} was saved for another target: its parameters are {header['space']}, "
            f"this target's {target.describe()}.",
            hint="the target that was fitted, with the same `like` and constraints",
        )
    if header["data"] != data_digest(target.given):
        raise FileError(
            f"{path} was saved for other data than this target's.",
            cause="the data changed since, or are those of another split",
            hint="the data that it was fitted to: target.with_data(…)",
        )
    if header["sampler"] not in _REBUILD:
        raise FileError(f"{path} holds a sampler {header['sampler']!r} unknown to this follmer.")
    settings = _with_own_code(path, header["settings"], own or {})
    coordinates = _coordinates(path, target, arrays)
    sampler = _REBUILD[header["sampler"]](coordinates, settings, arrays)
    prefix = "history_"
    history = {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }
    return Posterior(
        target,
        sampler,
        history,
        tuple(header["notes"]),
        header["audit"] and as_audit(header["audit"]),
        header["gradient_evaluations"],
        tuple(Attempt(**attempt) for attempt in header["plan"]),
        judgement=_judgement(header["judgement"]),
    )


def _judgement(words: list[str] | None) -> Judgement | None:
    return None if words is None else Judgement(Verdict(words[0]), words[1])


def _with_own_code(path: Path, settings: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the user's drifts and grid in place of "custom"."""
    settings = dict(settings)
    if settings.get("reference"):
        settings["reference_drift"] = settings["reference"]["drift"]
    for name in _OWN_CODE:
        value = own.get(name)
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
    return settings


def _coordinates(
    path: Path, target: AbstractTarget, arrays: dict[str, np.ndarray]
) -> AbstractTarget:
    """The target in the coordinates of the file's draws."""
    affine = _affine(target, arrays)
    if target.affine is None:
        return target.whitened(affine)
    if not eqx.tree_equal(affine, target.affine):
        raise FileError(
            f"{path} was saved in other coordinates than those that this target is whitened to.",
            hint="the target as it was before `whitened`",
        )
    return target


def _affine(target: AbstractTarget, arrays: dict[str, np.ndarray]) -> Affine | None:
    """The map to whitened coordinates that the file holds, if any."""
    parts = [arrays[name] for name in sorted(arrays) if name.startswith("affine")]
    if not parts:
        return None
    return Affine(*(jax.device_put(np.asarray(part, target.dtype)) for part in parts))


def _rebuild_flow(
    target: AbstractTarget, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> Flow | StructuredFlow:
    reference, described = None, settings.get("reference")
    if described is not None:
        own = {"drift": settings["reference_drift"], "grid": settings["grid"]}
        prior = as_target(target).prior
        reference = PriorProcess(_flow(prior, described | own, arrays, "reference", None))
    flow = _flow(target, settings, arrays, "parameter", reference)
    return flow_of(flow.process, flow.parameters)


def _flow(
    target: AbstractTarget,
    settings: dict[str, Any],
    arrays: dict[str, np.ndarray],
    prefix: str,
    reference: PriorProcess | None,
) -> Flow:
    kept = {name: settings[name] for name in ("drift", "drift_options", *SHARED)}
    process = Process(target, reference=reference, **kept)
    like = process.parameters(jax.random.key(0))
    return Flow(process, from_arrays(like, arrays, prefix))


def _rebuild_mixture(
    target: AbstractTarget, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> MixtureFlow:
    count, dim = settings["components"], target.dim
    like: GaussianMixture | ProductMixture
    if settings["form"] == "product":
        ones = np.ones((dim, count))
        like = ProductMixture(np.zeros(dim), np.eye(dim), ones, ones, ones, target.dtype)
    else:
        eye = np.broadcast_to(np.eye(dim), (count, dim, dim))
        like = GaussianMixture(np.ones(count), np.zeros((count, dim)), eye, target.dtype)
    # Files of earlier versions know of no candidates.
    candidates = settings.get("candidates", 1)
    return MixtureFlow(target, from_arrays(like, arrays, "mixture"), candidates)


def _rebuild_chains(
    target: AbstractTarget, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> StoredDraws:
    draws = arrays["draws"]
    like = np.zeros((*draws.shape[:2], target.dim), target.dtype)
    found = np.asarray(from_arrays(like, {"draws0": draws}, "draws"))
    return StoredDraws(found, **settings, shares=arrays.get("shares"))


_REBUILD: dict[str, Callable[[Any, dict[str, Any], dict[str, np.ndarray]], AbstractSampler]] = {
    "nsfs": _rebuild_flow,
    "structured": _rebuild_flow,
    "chains": _rebuild_chains,
    "mixture": _rebuild_mixture,
    "along_chains": rebuild_along_chains,
    "mc_sfs": lambda target, settings, _: HeatSemigroupSampler(target, **settings),
}
