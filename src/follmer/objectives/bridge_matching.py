"""Bridge matching: the mass-covering objective, learned from draws of the target."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.mcmc.chains import NUM_LEAPFROG, Chains, Wide
from follmer.mcmc.chains import move as hmc_move
from follmer.objectives.abstract import AbstractObjective, Loss, bridge_points
from follmer.objectives.problem import Problem
from follmer.paths import Drift, Move
from follmer.tools.mesh import PATHS, over


class Memory(NamedTuple):
    """Draws of the target, and the step size of their moves."""

    draws: Float[Array, "draws dim"]
    step_size: Float[Array, ""]


class BridgeMatching(AbstractObjective):
    """KL from the draws' Brownian bridges to the simulated chain, each step in closed form.

    Its minimiser is the Föllmer process of the law of the draws. The memory starts as `draws` and
    is refreshed in two ways that leave the target as it is: by the drift's own paths, resampled by
    their exact weights (half as many as are effective, so that rough draws are replaced by right
    ones only as fast as they are found), and by MCMC moves, which reach where no path has been.

    **Arguments:**

    - `draws`: of the target (from SMC, MCMC, …) in its flat coordinates.
    - `num_points`: points on bridges per training step.
    - `refresh_every`: training steps between two refreshments.
    - `refresh_paths`: paths simulated for each.
    - `moves`: HMC moves of the whole memory in each.
    """

    draws: Float[Array, "draws dim"]
    num_points: int = eqx.field(static=True, default=1024)
    refresh_every: int = eqx.field(static=True, default=100)
    refresh_paths: int = eqx.field(static=True, default=1024)
    moves: int = eqx.field(static=True, default=4)

    @property
    def has_memory(self) -> bool:
        return True

    def init(self, problem: Problem, key: PRNGKeyArray) -> Memory:
        dtype = problem.diffusion.dtype
        return Memory(jnp.asarray(self.draws, dtype), jnp.full((), 0.5, dtype))

    def refresh(
        self,
        memory: Memory,
        iteration: Int[Array, ""],
        averaged: Callable[[], Drift],
        problem: Problem,
        key: PRNGKeyArray,
    ) -> Memory:
        def renewed(memory: Memory) -> Memory:
            replay_key, move_key = jax.random.split(key)
            draws = self._replayed(memory.draws, averaged(), problem, replay_key)
            if self.moves == 0:
                return memory._replace(draws=draws)
            return self._moved(Memory(draws, memory.step_size), problem, move_key)

        is_due = (iteration + 1) % self.refresh_every == 0
        return jax.lax.cond(is_due, renewed, lambda memory: memory, memory)

    def _moved(self, memory: Memory, problem: Problem, key: PRNGKeyArray) -> Memory:
        """The memory after a few moves that leave the target as it is."""
        draws, step_size = over(PATHS, memory)
        value_and_gradient = jax.vmap(jax.value_and_grad(problem.log_density))
        zero, one = jnp.zeros(draws.shape[1], draws.dtype), jnp.ones((), draws.dtype)
        whole = Wide(zero, zero + 1.0, one)

        def body(chains: Chains, key: PRNGKeyArray) -> tuple[Chains, None]:
            identity = jnp.eye(draws.shape[1], dtype=draws.dtype)
            return hmc_move(value_and_gradient, chains, whole, identity, key)[0], None

        chains = Chains(draws, *value_and_gradient(draws), step_size)
        chains, _ = jax.lax.scan(body, chains, jax.random.split(key, self.moves))
        return Memory(chains.x, chains.step_size)

    def _replayed(
        self, memory: Float[Array, "draws dim"], drift: Drift, problem: Problem, key: PRNGKeyArray
    ) -> Float[Array, "draws dim"]:
        path_key, pick_key, place_key = jax.random.split(key, 3)
        paths = problem._replace(num_paths=self.refresh_paths).simulate(drift, path_key)
        log_weights = problem.log_terminal(paths.end) + paths.log_ratio
        log_weights = jnp.where(jnp.isfinite(log_weights), log_weights, -jnp.inf)
        weights = jax.nn.softmax(log_weights)
        # One huge weight must not fill the memory: weights are cut at 1/√n (Ionides, 2008).
        weights = jnp.minimum(weights, 1.0 / math.sqrt(self.refresh_paths))
        weights = weights / jnp.sum(weights)
        picked = jax.random.choice(pick_key, self.refresh_paths, (self.refresh_paths,), p=weights)
        effective = 1.0 / jnp.sum(weights**2)
        places = jax.random.permutation(place_key, len(memory))[: self.refresh_paths]
        kept = (jnp.arange(len(places)) < 0.5 * effective)[:, None]
        return memory.at[places].set(
            jnp.where(kept, paths.end[picked[: len(places)]], memory[places])
        )

    def gradient_evaluations(self, iterations: int, num_paths: int, per_path: int) -> int:
        # Moves hand the last gradient on: only the first of a refreshment asks for one more.
        moved = len(self.draws) * (1 + self.moves * NUM_LEAPFROG) if self.moves else 0
        return iterations // self.refresh_every * (moved + self.refresh_paths * per_path)

    def loss(self, drift: Drift, problem: Problem, memory: Memory, key: PRNGKeyArray) -> Loss:
        diffusion = problem.diffusion
        pick_key, bridge_key = jax.random.split(key)
        rows = jax.random.randint(pick_key, (self.num_points,), 0, len(memory.draws))
        ends = memory.draws[rows]
        steps, x = bridge_points(diffusion, ends, bridge_key)

        def one(t: Array, dt: Array, x: Array, end: Array) -> Float[Array, ""]:
            move = diffusion.step(drift, diffusion.gamma, t, dt, x)
            # What the bridge does in this step, in the reference's units.
            shift = (end - x) / (1.0 - t) * jnp.sqrt(dt / diffusion.gamma)
            variance = jnp.maximum(1.0 - t - dt, 0.0) / (1.0 - t)
            return _log_score(Move(jnp.zeros_like(x)), shift, variance) - _log_score(
                move, shift, variance
            )

        terms = jax.vmap(one)(diffusion.starts[steps], diffusion.lengths[steps], x, ends)
        loss = diffusion.num_steps * jnp.mean(terms)
        log_terminal = problem.log_terminal(ends[: problem.num_paths])
        return loss, log_terminal + loss


def _log_score(move: Move, mean: Float[Array, " dim"], variance: Array) -> Float[Array, ""]:
    """E over N(mean, variance) of ln N(·|shift, scale²), constants aside."""
    scale = jnp.ones_like(mean) if move.scale is None else move.scale
    return -jnp.sum(0.5 * (variance + (mean - move.shift) ** 2) / scale**2 + jnp.log(scale))
