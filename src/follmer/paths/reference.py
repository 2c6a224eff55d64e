"""What the controlled process is measured against: Brownian motion, or the process of a prior."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.paths.steps import Base, Step, on_top

# From a state to a log density.
LogFactor = Callable[[Float[Array, " dim"]], Float[Array, ""]]

# What a process has in common with its reference: the noise and where it is added.
SHARED = ("gamma", "num_steps", "grid", "step_rule")


class AbstractReference(eqx.Module):
    """A process whose law training steers away from. Sampling weighs against Brownian motion."""

    @property
    @abc.abstractmethod
    def base(self) -> Base | None:
        """The moves of the process, in whose units training steps; None for Brownian motion."""

    @abc.abstractmethod
    def composed(self, step: Step) -> Step:
        """The step in units of Brownian motion, as sampling takes it."""

    @abc.abstractmethod
    def log_factor(self, target: Any, batch: PyTree, log_terminal: LogFactor) -> LogFactor:
        """What paths of the reference are reweighted by: the target over its law at time 1."""

    @abc.abstractmethod
    def check(self, process: Any) -> None:
        """An error where a process cannot be trained against this reference."""

    @abc.abstractmethod
    def describe(self) -> Any:
        """What a file keeps of it."""


class Brownian(AbstractReference):
    """√γ B, which ends in N(0, γI)."""

    @property
    def base(self) -> None:
        return None

    def composed(self, step: Step) -> Step:
        return step

    def log_factor(self, target: Any, batch: PyTree, log_terminal: LogFactor) -> LogFactor:
        return log_terminal

    def check(self, process: Any) -> None:
        pass

    def describe(self) -> None:
        return None


class PriorProcess(AbstractReference):
    """A trained process that ends in the prior: what is left to learn is the likelihood."""

    flow: Any  # a process and its parameters

    @property
    def base(self) -> Base:
        return self.flow.move

    @property
    def options(self) -> dict[str, Any]:
        """What a process on top of this one shares with it."""
        return {name: getattr(self.flow.process, name) for name in SHARED}

    def composed(self, step: Step) -> Step:
        return on_top(self.flow.move, step)

    def log_factor(self, target: Any, batch: PyTree, log_terminal: LogFactor) -> LogFactor:
        return lambda x: target.log_likelihood(x, batch)

    def check(self, process: Any) -> None:
        check_has_data(process.target.num_data)
        for name, wanted in self.options.items():
            given = getattr(process, name)
            if given != wanted:
                raise InputError(
                    f"{name}={given!r} differs from the reference's {wanted!r}.",
                    cause="both processes run on one time grid with the same noise",
                    hint=f"leave {name} out, or make the reference with it",
                )

    def describe(self) -> Any:
        return self.flow.describe()


def check_has_data(num_data: int | None) -> None:
    """An error where a target does not tell its prior from its data."""
    if num_data is None:
        raise InputError(
            "a reference was given, but the target does not tell its prior from its data.",
            cause="the target was built from a log density",
            hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
        )
