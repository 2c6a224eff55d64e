"""A training run as it stands between chunks, in memory and on disk."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from follmer.errors import FileError, InputError
from follmer.nsfs import NSFS, Info, State
from follmer.tools import storage
from follmer.tools.trees import from_arrays, to_arrays

_FILE_KIND = "checkpoint"
_FILE_NAME = "checkpoint.follmer"


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


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One file in the user's folder, replaced after each chunk; or nothing, without a folder."""

    path: Path | None
    fingerprint: dict[str, Any]
    exists: bool = False

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        resume: bool,
        algorithm: NSFS,
        key: PRNGKeyArray,
        chunk_size: int,
    ) -> "Checkpoint":
        fingerprint = {
            "settings": algorithm.describe(),
            "space": algorithm.target.space.describe(),
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "chunk_size": chunk_size,
        }
        if folder is None:
            if resume:
                raise InputError("resume=True needs checkpoint=, the folder to resume from.")
            return cls(None, fingerprint)
        path = Path(folder) / _FILE_NAME
        if path.exists() and not resume:
            raise InputError(
                f"{path} already holds a run.",
                hint="resume=True to go on with it, another folder, or delete the file",
            )
        return cls(path, fingerprint, path.exists())

    def save(self, run: Run) -> None:
        if self.path is None:
            return
        simple = {name: getattr(run, name) for name in Run._fields[3:]}
        history = {f"history_{name}": values for name, values in run.history.items()}
        arrays = to_arrays(run.state, "state") | to_arrays(run.best, "best") | history
        storage.write(self.path, _FILE_KIND, {"run": simple, **self.fingerprint}, arrays)

    def load(self, like: State) -> Run:
        """The stored run; an error if it was made with other settings."""
        assert self.path is not None
        header, arrays = storage.read(self.path, _FILE_KIND)
        for name, wanted in self.fingerprint.items():
            if header[name] != wanted:
                raise FileError(
                    f"{self.path} was made with other {name}: {_difference(header[name], wanted)}.",
                    cause="an argument of fit changed since",
                    hint="the arguments of the first run, or another checkpoint folder",
                )
        history = {name: arrays[f"history_{name}"] for name in Run.start(like).history}
        return Run(
            state=from_arrays(like, arrays, "state"),
            best=from_arrays(like.average, arrays, "best"),
            history=history,
            **header["run"],
        )


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        changed = [name for name in wanted if found.get(name) != wanted[name]]
        return ", ".join(f"{name} {found.get(name)!r} → {wanted[name]!r}" for name in changed)
    return f"{found!r} → {wanted!r}"
