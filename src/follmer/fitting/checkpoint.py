"""A training run as it stands between chunks, in memory and on disk, with the plan it follows."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from follmer.errors import FileError, InputError, difference
from follmer.mcmc.population import Population
from follmer.nsfs import Info, State
from follmer.plans import Plan
from follmer.plans.survey import Store
from follmer.posterior.posterior import Attempt
from follmer.targets import AbstractTarget, Affine
from follmer.tools import storage
from follmer.tools.trees import from_arrays, to_arrays

_FILE_KIND = "checkpoint"
_FILE_NAME = "checkpoint.follmer"
_RUNG_FILE_NAME = "rung.follmer"


class Run(NamedTuple):
    """Everything that decides how training goes on."""

    state: State
    best: PyTree | None  # averaged parameters of the best evaluation so far
    history: dict[str, np.ndarray]
    iteration: int = 0
    elbo: float = -np.inf
    elbo_se: float = 0.0
    ess: float = 0.0
    best_elbo: float = -np.inf
    stale: int = 0  # evaluations since the best

    @classmethod
    def start(cls, state: State) -> "Run":
        per_step = {name: np.zeros(0) for name in Info._fields}
        per_chunk = {f"evaluation_{name}": np.zeros(0) for name in ("iteration", "elbo", "ess")}
        return cls(state, None, per_step | per_chunk)

    def extended(
        self, state: State, info: Info, *, elbo: float, elbo_se: float, ess: float
    ) -> "Run":
        """The run after one more chunk."""
        iteration = self.iteration + len(info.loss)
        new = info._asdict() | {
            "evaluation_iteration": [iteration],
            "evaluation_elbo": [elbo],
            "evaluation_ess": [ess],
        }
        history = {name: np.append(old, new[name]) for name, old in self.history.items()}
        return self._replace(
            state=state, history=history, iteration=iteration, elbo=elbo, elbo_se=elbo_se, ess=ess
        )


class Progressed(NamedTuple):
    """How far up the ladder a run has come: the plan it trains, what was tried before, draws."""

    plan: Plan
    attempts: tuple[Attempt, ...]
    gradient_evaluations: int
    population: Population | None
    facts: Mapping[str, Any] | None = None  # what the survey knows of modes


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One file in the user's folder, replaced after each chunk."""

    path: Path
    fingerprint: dict[str, Any]
    content: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None  # of an interrupted run
    resume: bool = False

    @classmethod
    def open(cls, folder: str | Path, *, resume: bool, fingerprint: dict[str, Any]) -> "Checkpoint":
        """The checkpoint, looked at before anything is computed.

        An error where a run is there that shall not be resumed, or one with other options.
        """
        path = Path(folder) / _FILE_NAME
        for one in (path, Path(folder) / _RUNG_FILE_NAME):
            if storage.exists(one) and not resume:
                raise InputError(
                    f"{one} already holds a run.",
                    hint="resume=True to go on with it, another folder, or delete the file",
                )
        if not storage.exists(path):
            return cls(path, fingerprint, resume=resume)
        header, arrays = storage.read(path, _FILE_KIND)
        for name, wanted in fingerprint.items():
            if header[name] != wanted:
                raise FileError(
                    f"{path} was made with other {name}: {difference(header[name], wanted)}.",
                    cause="an argument of fit changed since",
                    hint="the arguments of the first run, or another checkpoint folder",
                )
        return cls(path, fingerprint, (header, arrays), resume)

    def for_rungs(self) -> Store:
        """The file in which a rung that trains nothing keeps what it has so far."""
        path = self.path.with_name(_RUNG_FILE_NAME)
        return Store(path, self.fingerprint, resume=self.resume)

    def save(self, run: Run, progressed: Progressed) -> None:
        """Replace the file by one that holds the run and the plan."""
        plan = progressed.plan
        simple = {name: getattr(run, name) for name in Run._fields[3:]}
        header = {
            "run": simple,
            "rung": plan.rung,
            "why": plan.why,
            "settings": {name: one for name, one in plan.settings.items() if _is_plain(one)},
            "attempts": [attempt._asdict() for attempt in progressed.attempts],
            "gradient_evaluations": progressed.gradient_evaluations,
            "facts": progressed.facts,
            **self.fingerprint,
        }
        history = {f"history_{name}": values for name, values in run.history.items()}
        arrays = to_arrays(run.state, "state") | to_arrays(run.best, "best") | history
        arrays |= to_arrays(plan.target.affine, "affine")
        if plan.draws is not None:
            arrays["plan_draws"] = np.asarray(plan.draws)
        if progressed.population is not None:
            arrays |= progressed.population.arrays()
        storage.write(self.path, _FILE_KIND, header, arrays)

    def progressed(self, target: AbstractTarget) -> Progressed | None:
        """How far an interrupted run has come; None where there is none."""
        if self.content is None:
            return None
        header, arrays = self.content
        parts = [arrays[name] for name in sorted(arrays) if name.startswith("affine")]
        affine = (
            Affine(*(jax.device_put(np.asarray(part, target.dtype)) for part in parts))
            if parts
            else None
        )
        draws = arrays.get("plan_draws")
        plan = Plan(
            header["rung"],
            target.whitened(affine),
            header["settings"],
            header["why"],
            None,
            None if draws is None else jnp.asarray(draws),
        )
        has_population = "population_masses" in arrays
        return Progressed(
            plan,
            tuple(Attempt(**attempt) for attempt in header["attempts"]),
            header["gradient_evaluations"],
            Population.from_arrays(arrays) if has_population else None,
            header["facts"],
        )

    def load(self, like: State, rung: str) -> Run:
        """The stored run of that rung, or the start of a new one."""
        if self.content is None or self.content[0]["rung"] != rung:
            return Run.start(like)
        header, arrays = self.content
        history = {name: arrays[f"history_{name}"] for name in Run.start(like).history}
        return Run(
            state=from_arrays(like, arrays, "state"),
            best=from_arrays(like.average, arrays, "best"),
            history=history,
            **header["run"],
        )


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | dict | list | tuple | None)
