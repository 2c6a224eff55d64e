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
    """A drift beside a trained guess N(mean, γ scale²) of the target.

    The last `repeated` coordinates of the guess serve as many locals as the state holds.
    """

    drift: Drift
    mean: Float[Array, " guessed"]
    log_scale: Float[Array, " guessed"]
    repeated: int = eqx.field(static=True)

    def __init__(self, drift: Drift, dim: int, dtype: Any, repeated: int = 0):
        self.drift = drift
        self.mean = jnp.zeros(dim + repeated, dtype)
        self.log_scale = jnp.zeros(dim + repeated, dtype)
        self.repeated = repeated

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Control:
        """The Föllmer drift of the guess as wide as it looks from (t, x), and the drift on top."""
        control = as_control(self.drift(t, x))
        log_width = self._laid_out(self.log_scale, x) + control.log_width
        narrowing = jnp.exp(-2.0 * log_width)
        mean = self._laid_out(self.mean, x)
        pull = (narrowing * mean - (narrowing - 1.0) * x) / _spread(t, narrowing)
        return Control(pull + control.u, log_width, control.log_noise)

    def _laid_out(
        self, values: Float[Array, " guessed"], x: Float[Array, " dim"]
    ) -> Float[Array, " dim"]:
        if self.repeated == 0:
            return values
        once = len(values) - self.repeated
        times = (len(x) - once) // self.repeated
        return jnp.concatenate([values[:once], jnp.tile(values[once:], times)])


def as_control(answer: Float[Array, " dim"] | Control) -> Control:
    """A drift's answer in full: without a word on widths, the guess's and the reference's own."""
    if isinstance(answer, Control):
        return answer
    zero = jnp.zeros_like(answer)
    return Control(answer, zero, zero)


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


def step_log_ratio(move: Move, increment: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """ln N(increment|0, I) − ln N(increment|shift, scale²), coordinate by coordinate."""
    epsilon = increment - move.shift
    if move.scale is not None:
        epsilon = epsilon / move.scale
    # The difference of the squares first: they are large and nearly equal.
    difference = 0.5 * (epsilon - increment) * (epsilon + increment)
    return difference if move.scale is None else difference + jnp.log(move.scale)


def step_kl(move: Move) -> Float[Array, " dim"]:
    """KL( N(shift, scale²) ‖ N(0, I) ), coordinate by coordinate."""
    kl = 0.5 * move.shift**2
    if move.scale is None:
        return kl
    return kl + 0.5 * (move.scale**2 - 1.0) - jnp.log(move.scale)
