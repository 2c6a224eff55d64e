"""The one signature of objectives: init, refresh, loss."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.objectives.problem import Problem
from follmer.paths import Diffusion, Drift
from follmer.tools.mesh import PATHS, over

# What a loss returns: its value, and the paths' log weights −F (or an estimate, for the curve).
Loss = tuple[Float[Array, ""], Float[Array, " paths"]]


class AbstractObjective(eqx.Module):
    """A loss over drifts, least at the Föllmer drift; some learn from a memory of end points."""

    @property
    def has_memory(self) -> bool:
        """Whether it learns from a memory; then `init` and `refresh` make and renew it."""
        return False

    def check(self, process: Any) -> None:
        """An error where a process cannot be trained by this objective."""
        if not self.has_memory:
            return
        if process.has_statistics:
            raise InputError(
                "a drift with BatchNorm cannot be trained by an objective with a memory.",
                cause="its statistics are over paths at one time; a memory mixes times",
                hint="drift='mlp', or objective='stl', 'det', 'relative_entropy', 'log_variance'",
            )
        if process.reference is not None:
            raise InputError(
                "objectives that learn from a memory cannot be trained against a reference.",
                cause="they take the bridges of Brownian motion for those of the reference",
                hint="'stl', 'det', 'relative_entropy' or 'log_variance'",
            )

    def gradient_evaluations(self, iterations: int, num_paths: int, per_path: int) -> int:
        """Gradients of the target in so much training, of which the drift takes some `per_path`."""
        return iterations * num_paths * (1 + per_path)

    def init(self, problem: Problem, key: PRNGKeyArray) -> PyTree:
        """The memory before training."""
        return None

    def refresh(
        self,
        memory: PyTree,
        iteration: Int[Array, ""],
        averaged: Callable[[], Drift],
        problem: Problem,
        key: PRNGKeyArray,
    ) -> PyTree:
        """The memory at an iteration, renewed by the averaged drift when that is due."""
        return memory

    @abc.abstractmethod
    def loss(self, drift: Drift, problem: Problem, memory: PyTree, key: PRNGKeyArray) -> Loss:
        """The loss and the log weights of its paths."""


class FromFunction(AbstractObjective):
    """A loss given as a function (drift, problem, key) -> (loss, log_weights)."""

    function: Callable[[Drift, Problem, PRNGKeyArray], Loss]

    def loss(self, drift: Drift, problem: Problem, memory: PyTree, key: PRNGKeyArray) -> Loss:
        return self.function(drift, problem, key)


def bridge_points(
    diffusion: Diffusion, ends: Float[Array, "points dim"], key: PRNGKeyArray
) -> tuple[Int[Array, " points"], Float[Array, "points dim"]]:
    """For each end a step j of the grid and x_{t_j} on the Brownian bridge from 0 to the end.

    All steps of the grid take turns, so that their shares of a batch do not fluctuate.
    """
    ends = over(PATHS, ends)
    offset_key, noise_key = jax.random.split(key)
    offset = jax.random.randint(offset_key, (), 0, diffusion.num_steps)
    steps = (jnp.arange(len(ends)) + offset) % diffusion.num_steps
    t = diffusion.starts[steps][:, None]
    noise = jax.random.normal(noise_key, ends.shape, ends.dtype)
    return steps, t * ends + jnp.sqrt(diffusion.gamma * t * (1.0 - t)) * noise
