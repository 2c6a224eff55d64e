"""Runs experiments: every case by every method and seed, one record each."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from follmer.diagnostics import Diagnostics, verdict
from follmer.errors import InputError, closest
from follmer.experiments import (
    a9a,
    banana,
    gaussian_mixture,
    ica,
    linear_regression,
    step_function,
)
from follmer.experiments.experiment import METHODS, PRESETS, Case, Draws, Method, Trial

EXPERIMENTS: Mapping[str, Any] = {
    "linear_regression": linear_regression,
    "a9a": a9a,
    "ica": ica,
    "step_function": step_function,
    "banana": banana,
    "gaussian_mixture": gaussian_mixture,
}
_DIAGNOSED = ("elbo", "log_evidence", "ess_fraction", "khat")
# Weights are gone by up to this Pareto tail index.
_SOUND = 0.7


class Record(NamedTuple):
    """One case of an experiment by one method and seed, as `results.json` holds it."""

    experiment: str
    preset: str
    method: str
    seed: int
    metrics: dict[str, float | None]
    seconds: float
    settings: dict[str, Any]


def run(
    names: Sequence[str],
    *,
    preset: str = "auto",
    methods: Sequence[str] = METHODS,
    seeds: int = 5,
    tiny: bool = False,
    progress: Callable[[str], object] = lambda line: None,
) -> Iterator[tuple[Record, Trial]]:
    """One record and trial per case, method and seed; methods an experiment lacks are passed by."""
    _check("experiment", names, EXPERIMENTS)
    _check("preset", [preset], PRESETS)
    _check("method", methods, METHODS)
    return (
        result
        for name in names
        for seed in range(seeds)
        for case in EXPERIMENTS[name].cases(seed, tiny)
        for method, how in EXPERIMENTS[name].methods(preset, tiny).items()
        if method in methods and method not in case.leave_out
        for result in [_attempt(name, preset, method, how, case, seed, progress)]
    )


def _attempt(
    name: str,
    preset: str,
    method: str,
    how: Method,
    case: Case,
    seed: int,
    progress: Callable[[str], object],
) -> tuple[Record, Trial]:
    progress(" ".join(part for part in (name, case.label, f"({preset}): {method}, seed {seed}")))
    fit_key, check_key, draw_key = jax.random.split(jax.random.key(seed), 3)
    began = time.perf_counter()
    posterior = how.run(case.target, fit_key)
    seconds = time.perf_counter() - began
    found = posterior.diagnostics(key=check_key, num_samples=1024)
    judgement = verdict(found, posterior.second_opinion).name
    weighted = how.weighted and isinstance(found, Diagnostics) and found.khat < _SOUND
    draws = Draws(posterior, how, weighted, draw_key)
    metrics = {**_diagnosed(found), **case.judge(draws)}
    settings = {
        "case": case.label,
        **how.settings,
        "verdict": judgement,
        "weighted": weighted,
        "notes": list(posterior.notes),
    }
    record = Record(name, preset, method, seed, _finite(metrics), seconds, settings)
    return record, Trial(case, method, draws, metrics)


def _diagnosed(found: Any) -> dict[str, float]:
    return {name: getattr(found, name) for name in _DIAGNOSED if hasattr(found, name)}


def _finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinities."""
    return {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}


def _check(kind: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"there is no {kind} {name!r}.", hint=closest(name, known))
