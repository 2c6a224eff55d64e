"""A process that is no longer trained, which another one takes as its reference."""

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.objectives import AbstractReplay, as_objective
from follmer.paths import Move
from follmer.tools.trees import to_arrays

if TYPE_CHECKING:
    from follmer.nsfs import NSFS

# What a process has in common with its reference: the noise and where it is added.
SHARED = ("gamma", "num_steps", "grid", "step_rule")


@dataclasses.dataclass(frozen=True, eq=False)
class Process:
    """An algorithm and the drift parameters that it was trained to."""

    algorithm: "NSFS"
    parameters: PyTree

    @property
    def settings(self) -> dict[str, Any]:
        """What a process on top of this one shares with it."""
        return {name: getattr(self.algorithm, name) for name in SHARED}

    def move(self, t: Float[Array, ""], dt: Float[Array, ""], x: Float[Array, " dim"]) -> Move:
        """The step from x at time t."""
        return self.algorithm.move(self.parameters, t, dt, x)

    def describe(self) -> dict[str, Any]:
        """The algorithm's settings, and a digest of the parameters."""
        digest = hashlib.sha256()
        for array in to_arrays(self.parameters, "").values():
            digest.update(array.tobytes())
        return self.algorithm.describe() | {"digest": digest.hexdigest()}


def check_has_data(num_data: int | None) -> None:
    """An error where a target does not tell its prior from its data."""
    if num_data is None:
        raise InputError(
            "a reference was given, but the target does not tell its prior from its data.",
            cause="the target was built from a log density",
            hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
        )


def check_reference(algorithm: "NSFS") -> None:
    """An error where the algorithm cannot be trained against its reference."""
    reference = algorithm.reference
    if not isinstance(reference, Process):
        raise InputError(
            f"reference is {type(reference).__name__}, not a process.",
            hint="follmer.fit(target, reference=follmer.prior_process(target, key=key), key=key)",
        )
    check_has_data(algorithm.target.num_data)
    if isinstance(as_objective(algorithm.objective), AbstractReplay):
        raise InputError(
            "objectives that learn from a memory cannot be trained against a reference.",
            cause="they take the bridges of Brownian motion for those of the reference",
            hint="'stl', 'det', 'relative_entropy' or 'log_variance'",
        )
    for name, wanted in reference.settings.items():
        given = getattr(algorithm, name)
        if given != wanted:
            raise InputError(
                f"{name}={given!r} differs from the reference's {wanted!r}.",
                cause="both processes run on one time grid with the same noise",
                hint=f"leave {name} out, or make the reference with it",
            )
