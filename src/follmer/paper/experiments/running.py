"""Runs experiments: every case by every method and seed, one record each."""

import itertools
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax

from follmer.errors import InputError, in_a_line
from follmer.fitting.training import INTERRUPTED
from follmer.judging import Diagnostics, judge
from follmer.judging.verdict import LIMITS
from follmer.paper.experiments import (
    a9a,
    banana,
    cifar10,
    gaussian_mixture,
    ica,
    linear_regression,
    mnist,
    step_function,
    unmixing,
    weight_marginals,
)
from follmer.paper.experiments.experiment import (
    METHODS,
    PRESETS,
    Case,
    Draws,
    Method,
    Record,
    Trial,
)
from follmer.paper.experiments.parts import Parts
from follmer.posterior.posterior import Posterior
from follmer.tools.checks import known_names, positive_int
from follmer.tools.progress import Progress

EXPERIMENTS: Mapping[str, Any] = {
    "linear_regression": linear_regression,
    "a9a": a9a,
    "ica": ica,
    "step_function": step_function,
    "banana": banana,
    "gaussian_mixture": gaussian_mixture,
    "unmixing": unmixing,
    "mnist": mnist,
    "cifar10": cifar10,
    "weight_marginals": weight_marginals,
}
_DIAGNOSED = ("elbo", "log_evidence", "ess_fraction", "khat")

# A result's experiment, preset, method, seed and case.
Place = tuple[str, str, str, int, str]
# What failed has a record and no trial.
Result = tuple[Record, Trial | None]


def run(
    names: Sequence[str],
    *,
    preset: str = "auto",
    methods: Sequence[str] = METHODS,
    seeds: int = 5,
    iterations: int | None = None,
    tiny: bool = False,
    held: Collection[Place] = (),
    progress: Progress = lambda line: None,
) -> Iterator[Result]:
    """One record and trial per case, method and seed; what fails says so in its record.

    Methods that an experiment lacks are passed by. `iterations` takes the place of every method's
    own number of them, as where the authors' is too many for a CPU; records tell it. `tiny` goes
    all the way at toy size: its numbers mean nothing. What is `held` already is passed by.
    """
    known_names("experiment", names, EXPERIMENTS)
    known_names("preset", [preset], PRESETS)
    known_names("method", methods, METHODS)
    seeds = positive_int("seeds", seeds)
    fewer = {} if iterations is None else {"num_iterations": positive_int("iterations", iterations)}
    chosen = {
        name: {
            method: how.given(fewer)
            for method, how in EXPERIMENTS[name].methods(preset, tiny).items()
            if method in methods
        }
        for name in names
    }
    if not any(chosen.values()):
        raise InputError(
            f"there is nothing to run: with preset {preset!r}, {', '.join(names)} by "
            f"{', '.join(methods)}.",
            cause="not every experiment has every method",
            hint="; ".join(
                f"{n}: {', '.join(EXPERIMENTS[n].methods(preset, tiny))}" for n in names
            ),
        )
    parts = Parts()
    return (
        result
        for name, own in chosen.items()
        for seed in range(seeds)
        for result in _results(name, preset, own, seed, tiny, held, parts, progress)
    )


def _results(
    name: str,
    preset: str,
    methods: dict[str, Method],
    seed: int,
    tiny: bool,
    held: Collection[Place],
    parts: Parts,
    progress: Progress,
) -> Iterator[Result]:
    def failed(settings: dict[str, Any], method: str, seconds: float, error: Exception) -> Result:
        progress(f"failed: {error}")
        settings = {**settings, "error": in_a_line(error)}
        return Record(name, preset, method, seed, {}, seconds, settings), None

    def results_of(method: str, usual: Method, cases: list[Case]) -> Iterator[Result]:
        """Of cases that have one target: its posterior is made once."""
        made: tuple[Posterior, float] | None = None
        for case in cases:
            place = f"{name}, {case.label}" if case.label else name
            progress(f"{place} ({preset}): {method}, seed {seed}")
            how = usual.given(case.options.get(method, {}))
            settings = {"case": case.label, **how.settings}
            began = time.perf_counter()
            try:
                if made is None or method in case.options:
                    made = _made(how, case, seed, parts)
                posterior, seconds = made
                trial, found, drawing = _judged(method, how, case, seed, posterior)
            except Exception as error:
                yield failed(settings, method, time.perf_counter() - began, error)
                continue
            metrics, seconds = _finite(trial.metrics), seconds + drawing
            yield Record(name, preset, method, seed, metrics, seconds, settings | found), trial

    try:
        cases = EXPERIMENTS[name].cases(seed, tiny)
        for _, own in itertools.groupby(cases, key=lambda case: id(case.target)):
            alike = list(own)
            for method, usual in methods.items():
                wanted = [
                    case
                    for case in alike
                    if method not in case.leave_out
                    and (name, preset, method, seed, case.label) not in held
                ]
                yield from results_of(method, usual, wanted)
    except Exception as error:
        # The case itself, as where its data are missing.
        for method, how in methods.items():
            if (name, preset, method, seed, "") not in held:
                yield failed({"case": "", **how.settings}, method, 0.0, error)


def _made(how: Method, case: Case, seed: int, parts: Parts) -> tuple[Posterior, float]:
    """The posterior, and how long it took, with parts that another method had made before."""
    began = time.perf_counter()
    posterior = how.run(case.target, keys_of(seed)[0], **({"parts": parts} if how.shares else {}))
    seconds = time.perf_counter() - began + (parts.earlier if how.shares else 0.0)
    if any(note.startswith(INTERRUPTED) for note in posterior.notes):
        # Ctrl-C meant the whole run, and a drift cut short is no result.
        raise KeyboardInterrupt
    return posterior, seconds


def _judged(
    method: str, how: Method, case: Case, seed: int, posterior: Posterior
) -> tuple[Trial, dict[str, Any], float]:
    """The trial, what there is to say of it, and the seconds of its draws where they count."""
    _, check_key, draw_key = keys_of(seed)
    num_judged = None if posterior.target.has_locals else how.num_judged
    found = posterior.diagnostics(key=check_key, num_samples=num_judged)
    weighted = how.weighted and isinstance(found, Diagnostics) and found.khat < LIMITS.unsound_khat
    draws = Draws(posterior, how, weighted, draw_key)
    told = {
        "verdict": judge(found, posterior.audit).name,
        "weighted": weighted,
        "notes": list(posterior.notes),
    }
    began = time.perf_counter()
    metrics = case.judge(draws)
    seconds = time.perf_counter() - began if how.is_timed_by_draws else 0.0
    return Trial(case, method, draws, {**_diagnosed(found), **metrics}), told, seconds


def keys_of(seed: int) -> tuple[Any, ...]:
    """Those of the fit, of its diagnostics and of the draws that are judged."""
    return tuple(jax.random.split(jax.random.key(seed), 3))


def _diagnosed(found: Any) -> dict[str, float]:
    return {name: getattr(found, name) for name in _DIAGNOSED if hasattr(found, name)}


def _finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinities."""
    return {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}
