"""What `fit` was asked for, validated before anything is computed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError, unknown_option
from follmer.fitting.gamma_search import GAMMAS
from follmer.nsfs import ALGORITHM_OPTIONS, NSFS, State
from follmer.plans.rungs import is_ensemble
from follmer.posterior.posterior import Posterior
from follmer.targets import AbstractTarget, as_any_target, data_digest
from follmer.tools.checks import positive_float, positive_int
from follmer.tools.progress import NEVER, Deadline

# Share of draws around 0 at which a density may overflow where training starts elsewhere.
_RARE = 0.05
# How wide draws are where members of an ensemble start, about, and the share at which a density may
# overflow: members are replaced, in several rounds.
_OF_MEMBERS, _REPLACEABLE = 0.1, 0.75
# The arguments of `fit` itself, to tell a misspelt one.
_OF_FIT = [
    *["key", "precondition", "reference", "chunk_size", "patience", "callbacks"],
    *["checkpoint", "resume", "check", "audit", "progress", "max_seconds", "mesh"],
]


class Report(NamedTuple):
    """What a callback sees after each chunk. Returning True from a callback ends training."""

    iteration: int
    loss: float
    elbo: float
    ess_fraction: float
    state: State


Callback = Callable[[Report], Any]


class Schedule(NamedTuple):
    """How training is cut up, watched and ended."""

    chunk_size: int = 100
    patience: int | None = 10
    callbacks: Sequence[Callback] = ()
    progress: bool = True
    deadline: Deadline = NEVER


def as_schedule(
    chunk_size: Any, patience: Any, callbacks: Any, progress: bool, max_seconds: Any = None
) -> Schedule:
    """The schedule, whose time begins to run; an error where something in it cannot be."""
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError("callbacks must be a list of functions of a Report.")
    if patience is not None:
        patience = positive_int("patience", patience)
    seconds = None if max_seconds is None else positive_float("max_seconds", max_seconds)
    size = positive_int("chunk_size", chunk_size)
    return Schedule(size, patience, callbacks, progress, Deadline(seconds))


class Request(NamedTuple):
    """The target, how its posterior shall be reached, and what the user set."""

    target: AbstractTarget
    precondition: Any
    reference: Any
    options: Mapping[str, Any]
    algorithm: NSFS | None  # the one that was given, or what the options make of the target
    is_given: bool
    searches_gamma: bool

    def check(self, key: PRNGKeyArray) -> None:
        """The density is finite where training will start."""
        if self._is_ensemble:
            self.target.check(key=key, scale=_OF_MEMBERS, tolerated=_REPLACEABLE)
            return
        at_home = self.is_given or _is_name(self.precondition, "identity")
        gamma = 1.0 if self.algorithm is None else self.algorithm.process.gamma
        tolerated = 0.0 if at_home else _RARE
        self.target.check(key=key, scale=float(np.sqrt(gamma)), tolerated=tolerated)

    @property
    def _is_ensemble(self) -> bool:
        if self.is_given or self.reference is not None or not isinstance(self.precondition, str):
            return False
        return is_ensemble(self.precondition, self.target, self.options)

    def fingerprint(self, key: PRNGKeyArray, chunk_size: int) -> dict[str, Any]:
        """What a resumed run must have in common with the first."""
        # As the algorithm has them: checked, and in plain numbers.
        known = {} if self.algorithm is None else self.algorithm.describe()
        options = {name: known[name] for name in (known if self.is_given else self.options)}
        if isinstance(self.reference, Posterior):
            options["reference"] = self.reference.sampler.describe()
        # A map of the user's own is told apart by its numbers.
        is_name = isinstance(self.precondition, str)
        named = self.precondition if is_name else f"given {data_digest(self.precondition)[:16]}"
        return {
            "options": {**options, "precondition": named},
            "space": self.target.describe(),
            "data": data_digest(self.target.given),
            "key": np.asarray(jax.random.key_data(key)).tolist(),
            "chunk_size": chunk_size,
        }


def as_request(target: Any, precondition: Any, reference: Any, options: dict[str, Any]) -> Request:
    """The request; an error where something in it cannot be."""
    check_options(options)
    is_given = isinstance(target, NSFS)
    if reference is not None or is_given:
        _check_alone(is_given, precondition, reference)
    searches = _is_name(options.get("gamma"), "search")
    if searches:
        options["gamma"] = max(GAMMAS)
    if is_given:
        algorithm = target.changed(**options) if options else target
    else:
        # Options are checked by what they make of the target; without any there are none to check.
        target = as_any_target(target)
        algorithm = NSFS(target, **options) if options else None
    found = target if algorithm is None else algorithm.target
    return Request(found, precondition, reference, options, algorithm, is_given, searches)


def check_options(options: Iterable[str]) -> None:
    """An error for a name that is neither an option of `fit` nor of the algorithm."""
    known = {*ALGORITHM_OPTIONS, *_OF_FIT}
    for name in options:
        if name not in known:
            raise unknown_option(name, known)


def _check_alone(is_given: bool, precondition: Any, reference: Any) -> None:
    """What an algorithm or a reference decides is not given as well."""
    named = not _is_name(precondition, "auto")
    if is_given and (named or reference is not None):
        also = "a precondition" if named else "a reference"
        raise InputError(
            f"{also} was given together with an NSFS.",
            cause="an NSFS is trained as it is, in its own coordinates",
            hint="follmer.fit(target, …) with NSFS's options instead",
        )
    if named:
        raise InputError(
            f"reference was given together with precondition={precondition!r}.",
            cause="the reference brings its own coordinates and time grid",
            hint="follmer.fit(target, reference=process, key=key)",
        )


def _is_name(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name
