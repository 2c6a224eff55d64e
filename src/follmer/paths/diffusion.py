"""The controlled diffusion dΘ = u(t,Θ) dt + √γ dB, Θ_0 = 0, on a grid, with exact path weights.

For every number of steps, with q the simulated chain and p the reference chain (u = 0),
E_q[ f(x_k) p(path)/q(path) ] = ∫ f(x) N(x|0,γI) dx exactly: the discretisation has no bias.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.paths.steps import (
    Base,
    Drift,
    Move,
    Step,
    euler_maruyama,
    step_kl,
    step_log_ratio,
    take_step,
)
from follmer.tools.normals import standard_normals

# The vmapped axis of paths; drifts with batch statistics average over it.
PATHS_AXIS = "paths"


class Path(NamedTuple):
    """A simulated path and its score against the reference.

    `log_ratio` is ln p(path) − ln q(path) and `kl` the sum of the steps' KL(q_j‖p_j), whose
    expectation is that of −log_ratio. `states` are the left end points x_0 … x_{k−1}, `increments`
    the steps (x_{j+1} − x_j)/√(γΔt_j), or in units of the base's own step where there is one.
    """

    end: Float[Array, "*paths dim"]
    log_ratio: Float[Array, "*paths"]
    kl: Float[Array, "*paths"]
    states: Float[Array, "*paths steps dim"]
    increments: Float[Array, "*paths steps dim"]


class Diffusion(NamedTuple):
    """The reference process, its time grid and the kernel that steps along it.

    `weights` say how often each coordinate counts: where a batch of coordinates stands for many
    more, every sum over coordinates is scaled up.

    With a `base`, that process is the reference instead of √γ B: moves are in units of its steps,
    and paths are scored against it.
    """

    dim: int
    gamma: float
    times: np.ndarray
    dtype: Any
    step: Step = euler_maruyama
    weights: Float[Array, " dim"] | None = None
    base: Base | None = None

    @property
    def num_steps(self) -> int:
        return len(self.times) - 1

    @property
    def starts(self) -> Float[Array, " steps"]:
        """t_0 … t_{k−1}."""
        return jnp.asarray(self.times[:-1], self.dtype)

    @property
    def lengths(self) -> Float[Array, " steps"]:
        """Δt_0 … Δt_{k−1}."""
        return jnp.asarray(np.diff(self.times), self.dtype)

    def log_reference(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """ln N(x | 0, γI), the reference's law at time 1."""
        constant = math.log(2 * math.pi * self.gamma)
        if self.weights is None:
            return -0.5 * (jnp.sum(x**2) / self.gamma + self.dim * constant)
        return -0.5 * self.total(x**2 / self.gamma + constant)

    def total(self, terms: Float[Array, " dim"]) -> Float[Array, ""]:
        """The sum over coordinates, each as often as it counts."""
        return jnp.sum(terms if self.weights is None else self.weights * terms)

    def noise(self, key: PRNGKeyArray) -> Float[Array, "steps dim"]:
        """The standard normals of one path."""
        return standard_normals(key, (self.num_steps, self.dim), self.dtype)

    def after(
        self,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        x: Float[Array, " dim"],
        increment: Float[Array, " dim"],
    ) -> Float[Array, " dim"]:
        """The state after an increment, which is in units of the reference's step."""
        if self.base is not None:
            increment = take_step(self.base(t, dt, x), increment)
        return x + jnp.sqrt(self.gamma * dt) * increment


def simulate(drift: Drift, diffusion: Diffusion, noise: Float[Array, "steps dim"]) -> Path:
    """Run one path from 0 to time 1, evaluating the drift once per step."""

    def increment(move: Move, t: Array, dt: Array, x: Array, epsilon: Array) -> Array:
        return take_step(move, epsilon)

    return _run(drift, diffusion, noise, increment)


def bridge(
    drift: Drift,
    diffusion: Diffusion,
    end: Float[Array, " dim"],
    noise: Float[Array, "steps dim"],
) -> Path:
    """A path of the reference given that it ends in `end`, scored as if the drift had made it."""

    def increment(move: Move, t: Array, dt: Array, x: Array, epsilon: Array) -> Array:
        remaining = 1.0 - t
        spread = jnp.sqrt(jnp.maximum(remaining - dt, 0.0) / remaining)
        return (end - x) / remaining * jnp.sqrt(dt / diffusion.gamma) + spread * epsilon

    return _run(drift, diffusion, noise, increment)._replace(end=end)


def _run(
    drift: Drift,
    diffusion: Diffusion,
    noise: Float[Array, "steps dim"],
    increment_of: Callable[[Move, Array, Array, Array, Array], Array],
) -> Path:
    """One path whose increments are made by `increment_of`, scored by the drift's moves."""

    def body(x: Float[Array, " dim"], inputs: tuple[Any, ...]) -> tuple[Array, tuple[Array, ...]]:
        t, dt, epsilon = inputs
        move = diffusion.step(drift, diffusion.gamma, t, dt, x)
        increment = increment_of(move, t, dt, x, epsilon)
        scores = (diffusion.total(step_log_ratio(move, increment)), diffusion.total(step_kl(move)))
        return diffusion.after(t, dt, x, increment), (*scores, x, increment)

    # 0, but not a constant: of one, XLA would work out the first step's products while compiling.
    start = 0.0 * noise[0]
    steps = (diffusion.starts, diffusion.lengths, noise)
    end, (log_ratio, kl, states, increments) = jax.lax.scan(body, start, steps)
    return Path(end, jnp.sum(log_ratio), jnp.sum(kl), states, increments)
