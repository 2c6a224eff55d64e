"""Objectives that learn from a memory of end points instead of from fresh paths alone."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.objectives.problem import Problem
from follmer.paths import Diffusion, Drift


class AbstractReplay(abc.ABC):
    """A loss over a memory that is refreshed by the drift's own paths every few steps."""

    refresh_every: int

    @abc.abstractmethod
    def init(self, problem: Problem, key: PRNGKeyArray) -> PyTree:
        """The memory before training."""

    @abc.abstractmethod
    def refresh(self, memory: PyTree, drift: Drift, problem: Problem, key: PRNGKeyArray) -> PyTree:
        """The memory after some new paths of the drift."""

    @abc.abstractmethod
    def gradients_per_refresh(self, num_paths: int) -> int:
        """Gradients of the target that one refreshment takes."""

    @abc.abstractmethod
    def loss(
        self, drift: Drift, problem: Problem, memory: PyTree, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Float[Array, " paths"]]:
        """The loss, and an estimate of the log weights for the training curve."""


def is_replay(objective: Any) -> bool:
    return isinstance(objective, AbstractReplay)


def bridge_points(
    diffusion: Diffusion, ends: Float[Array, "points dim"], key: PRNGKeyArray
) -> tuple[Int[Array, " points"], Float[Array, "points dim"]]:
    """For each end a step j of the grid and x_{t_j} on the Brownian bridge from 0 to the end.

    All steps of the grid take turns, so that their shares of a batch do not fluctuate.
    """
    offset_key, noise_key = jax.random.split(key)
    offset = jax.random.randint(offset_key, (), 0, diffusion.num_steps)
    steps = (jnp.arange(len(ends)) + offset) % diffusion.num_steps
    t = diffusion.starts[steps][:, None]
    noise = jax.random.normal(noise_key, ends.shape, ends.dtype)
    return steps, t * ends + jnp.sqrt(diffusion.gamma * t * (1.0 - t)) * noise
