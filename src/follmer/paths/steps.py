"""Transition kernels of the controlled diffusion, in units of the reference's own step.

The reference steps as N(x, γΔt I). A kernel N(x + √(γΔt) shift, γΔt scale²) is told by its `Move`,
which is what an exact weight needs; Euler–Maruyama keeps the reference's scale.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Control(NamedTuple):
    """What a drift may say besides u: how wide it sees the target, how noisy the step shall be.

    `log_width` is added to the log scale of the Gaussian guess, as seen from (t, x); `log_noise` to
    the log scale of the step. Both are learned with u and are part of the exact weight.
    """

    u: Float[Array, " dim"]
    log_width: Float[Array, " dim"]
    log_noise: Float[Array, " dim"]


Drift = Callable[[Float[Array, ""], Float[Array, " dim"]], Float[Array, " dim"] | Control]


class Move(NamedTuple):
    """One step's Gaussian, relative to the reference's."""

    shift: Float[Array, " dim"]
    scale: Float[Array, " dim"] | None = None  # None: the reference's own


# From (drift, gamma, t, dt, x) to the move at x.
Step = Callable[[Any, float, Float[Array, ""], Float[Array, ""], Float[Array, " dim"]], Move]

# From (t, dt, x) to the move of a process that is not trained.
Base = Callable[[Float[Array, ""], Float[Array, ""], Float[Array, " dim"]], Move]


def euler_maruyama(
    drift: Drift,
    gamma: float,
    t: Float[Array, ""],
    dt: Float[Array, ""],
    x: Float[Array, " dim"],
) -> Move:
    """x + u(t, x) Δt + √(γΔt) ε, or with learned noise in place of ε."""
    control = drift(t, x)
    if not isinstance(control, Control):
        return Move(shift=control * jnp.sqrt(dt / gamma))
    return Move(control.u * jnp.sqrt(dt / gamma), jnp.exp(control.log_noise))


class GaussianGuess(eqx.Module):
    """A drift beside a trained guess N(mean, γ scale²) of the target."""

    drift: Drift
    mean: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]

    def __init__(self, drift: Drift, dim: int, dtype: Any):
        self.drift = drift
        self.mean = jnp.zeros(dim, dtype)
        self.log_scale = jnp.zeros(dim, dtype)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Control:
        """The Föllmer drift of the guess as wide as it looks from (t, x), and the drift on top."""
        control = self.drift(t, x)
        if not isinstance(control, Control):
            zero = jnp.zeros_like(x)
            control = Control(control, zero, zero)
        log_width = self.log_scale + control.log_width
        narrowing = jnp.exp(-2.0 * log_width)
        pull = (narrowing * self.mean - (narrowing - 1.0) * x) / _spread(t, narrowing)
        return Control(pull + control.u, log_width, control.log_noise)


def _spread(t: Float[Array, ""], narrowing: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """t + (1−t) γ/s², which is 1 throughout where the guess is the reference."""
    return t + (1.0 - t) * narrowing


def h_transform(
    guess: GaussianGuess,
    gamma: float,
    t: Float[Array, ""],
    dt: Float[Array, ""],
    x: Float[Array, " dim"],
) -> Move:
    """The Gaussian guess's own transition, with the drift on top.

    It is Euler–Maruyama with the guess's Föllmer drift and the right variance: exact for a target
    equal to the guess at any number of steps. Where the guess is N(0, γI), as at the start, it is
    plain Euler–Maruyama. A drift that answers with a `Control` makes the guess's width depend on
    the state, which targets whose scale varies need.
    """
    u, log_width, log_noise = guess(t, x)
    narrowing = jnp.exp(-2.0 * log_width)
    scale = jnp.sqrt(_spread(t + dt, narrowing) / _spread(t, narrowing)) * jnp.exp(log_noise)
    return Move(u * jnp.sqrt(dt / gamma), scale)


STEPS: dict[str, Step] = {"euler_maruyama": euler_maruyama, "h_transform": h_transform}


def take_step(move: Move, epsilon: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """The increment (x' − x)/√(γΔt) that standard noise makes of a move."""
    return move.shift + (epsilon if move.scale is None else move.scale * epsilon)


def on_top(base: Base, step: Step) -> Step:
    """Steps in units of another process's: what the move does to noise, the base does after it."""

    def composed(
        drift: Drift,
        gamma: float,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        x: Float[Array, " dim"],
    ) -> Move:
        below, above = base(t, dt, x), step(drift, gamma, t, dt, x)
        shift = take_step(below, above.shift)
        if below.scale is None or above.scale is None:
            return Move(shift, above.scale if below.scale is None else below.scale)
        return Move(shift, below.scale * above.scale)

    return composed


def step_log_ratio(move: Move, increment: Float[Array, " dim"]) -> Float[Array, ""]:
    """ln N(increment|0, I) − ln N(increment|shift, scale²)."""
    epsilon = increment - move.shift
    if move.scale is not None:
        epsilon = epsilon / move.scale
    # The difference of the squares first: their sums are large and nearly equal.
    difference = jnp.sum(0.5 * (epsilon - increment) * (epsilon + increment))
    return difference if move.scale is None else difference + jnp.sum(jnp.log(move.scale))


def step_kl(move: Move) -> Float[Array, ""]:
    """KL( N(shift, scale²) ‖ N(0, I) )."""
    kl = 0.5 * jnp.sum(move.shift**2)
    if move.scale is None:
        return kl
    return kl + jnp.sum(0.5 * (move.scale**2 - 1.0) - jnp.log(move.scale))
