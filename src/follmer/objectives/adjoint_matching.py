"""Adjoint matching: regression on the target's gradient, without differentiating the path."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.objectives.abstract import AbstractObjective, Loss, bridge_points
from follmer.objectives.problem import Problem
from follmer.paths import Drift


class Gradients(NamedTuple):
    """End points, and γ∇ ln f there."""

    ends: Float[Array, "memory dim"]
    pulls: Float[Array, "memory dim"]


class AdjointMatching(AbstractObjective):
    """Regress u(t, x_t) on γ∇ ln f(x_1), x_t on the Brownian bridge from 0 to x_1.

    For this process the lean adjoint is constant in time, so one gradient of the target serves all
    times, and a memory of them many steps. The fixed point is u* = γ E[∇ ln f(Θ_1) | Θ_t]. With
    mini-batches the gradients, and so the regression, are unbiased.

    **Arguments:**

    - `capacity`: end points remembered; new ones overwrite any of them.
    - `num_points`: points on bridges per training step.
    - `refresh_every`: training steps between two roll-outs of `num_paths` paths.
    - `largest`: pulls are shortened to this many reference standard deviations per coordinate.
    """

    capacity: int = eqx.field(static=True, default=4096)
    num_points: int = eqx.field(static=True, default=1024)
    refresh_every: int = eqx.field(static=True, default=4)
    largest: float = eqx.field(static=True, default=30.0)

    @property
    def has_memory(self) -> bool:
        return True

    def gradient_evaluations(self, iterations: int, num_paths: int, per_path: int) -> int:
        return iterations // self.refresh_every * num_paths * (1 + per_path)

    def init(self, problem: Problem, key: PRNGKeyArray) -> Gradients:
        diffusion = problem.diffusion
        noise = jax.random.normal(key, (self.capacity, diffusion.dim), diffusion.dtype)
        # Before training the paths end in the reference.
        return self._gradients(jnp.sqrt(diffusion.gamma) * noise, problem)

    def refresh(
        self,
        memory: Gradients,
        iteration: Int[Array, ""],
        averaged: Callable[[], Drift],
        problem: Problem,
        key: PRNGKeyArray,
    ) -> Gradients:
        def renewed(memory: Gradients) -> Gradients:
            path_key, place_key = jax.random.split(key)
            new = self._gradients(problem.simulate(averaged(), path_key).end, problem)
            places = jax.random.permutation(place_key, self.capacity)[: problem.num_paths]
            return jax.tree.map(lambda old, rows: old.at[places].set(rows), memory, new)

        is_due = (iteration + 1) % self.refresh_every == 0
        return jax.lax.cond(is_due, renewed, lambda memory: memory, memory)

    def loss(self, drift: Drift, problem: Problem, memory: Gradients, key: PRNGKeyArray) -> Loss:
        diffusion = problem.diffusion
        pick_key, bridge_key = jax.random.split(key)
        rows = jax.random.randint(pick_key, (self.num_points,), 0, self.capacity)
        steps, x = bridge_points(diffusion, memory.ends[rows], bridge_key)

        def one(t: Array, dt: Array, x: Array, pull: Array) -> Float[Array, ""]:
            move = diffusion.step(drift, diffusion.gamma, t, dt, x)
            return 0.5 * jnp.sum((move.shift - pull * jnp.sqrt(dt / diffusion.gamma)) ** 2)

        terms = jax.vmap(one)(
            diffusion.starts[steps], diffusion.lengths[steps], x, memory.pulls[rows]
        )
        loss = diffusion.num_steps * jnp.mean(terms)
        log_terminal = problem.log_terminal(memory.ends[: problem.num_paths])
        return loss, log_terminal - loss

    def _gradients(self, ends: Float[Array, "paths dim"], problem: Problem) -> Gradients:
        diffusion = problem.diffusion
        pulls = diffusion.gamma * jax.vmap(
            jax.grad(lambda x: problem.log_density(x) - diffusion.log_reference(x))
        )(ends)
        largest = self.largest * jnp.sqrt(diffusion.gamma)
        pulls = jnp.where(jnp.isfinite(pulls), jnp.clip(pulls, -largest, largest), 0.0)
        return Gradients(ends, pulls)
