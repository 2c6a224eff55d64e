"""The default drift: a residual MLP modulated by the time."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import linears, zero_linear
from follmer.paths import Control

_NUM_FREQUENCIES = 4
# Time remaining, below which times look the same.
_RESOLUTION = 1e-6
# Up to this many coordinates the network acts at full strength.
_GENTLE = 32
# Bounds of the log scales, far from where they are trained to.
LARGEST_WIDTH, LARGEST_NOISE = 10.0, 3.0


class TimeMLP(eqx.Module):
    """x ↦ u, log width and log noise, by layers that the time scales and shifts; zero at the start.

    The Gaussian guess of the h-transform steps is linear in x; the network is left with what is not
    Gaussian, and with how the scale of the target varies from place to place.
    """

    first: eqx.nn.Linear
    time: eqx.nn.Linear
    hidden: tuple[eqx.nn.Linear, ...]
    modulations: tuple[eqx.nn.Linear, ...]
    last: eqx.nn.Linear
    gain: float = eqx.field(static=True)

    def __init__(
        self, dim: int, *, width: int = 64, depth: int = 3, context: int = 0, key: PRNGKeyArray
    ):
        sizes = [(dim + context, width), (2 * _NUM_FREQUENCIES + 2, width)]
        sizes += [(width, width)] * depth + [(width, 2 * width)] * depth
        self.first, self.time, *layers = linears(sizes, key)
        self.hidden, self.modulations = tuple(layers[:depth]), tuple(layers[depth:])
        self.last = zero_linear(width, 3 * dim, key)
        # Noise of training adds up over coordinates: many of them are steered more gently.
        self.gain = min(1.0, _GENTLE / dim)

    def __call__(
        self,
        t: Float[Array, ""],
        x: Float[Array, " dim"],
        context: Float[Array, " context"] | None = None,
    ) -> Control:
        time = jax.nn.silu(self.time(time_features(t)))
        h = self.first(x if context is None else jnp.concatenate([x, context]))
        for layer, modulation in zip(self.hidden, self.modulations, strict=True):
            scale, shift = jnp.split(modulation(time), 2)
            h = h + jax.nn.silu((1.0 + scale) * layer(h) + shift)
        u, log_width, log_noise = jnp.split(self.gain * self.last(h), 3)
        return Control(u, bounded(log_width, LARGEST_WIDTH), bounded(log_noise, LARGEST_NOISE))


def bounded(x: Float[Array, " dim"], bound: float) -> Float[Array, " dim"]:
    """x, bent where it nears ± the bound."""
    return bound * jnp.tanh(x / bound)


def time_features(t: Float[Array, ""]) -> Float[Array, " features"]:
    """The time in a form that a linear layer can tell apart."""
    angles = t * jnp.asarray(np.pi * np.arange(1, _NUM_FREQUENCIES + 1), t.dtype)
    # Geometric grids crowd towards t = 1: the log of what remains tells their times apart.
    remaining = jnp.log(1.0 - t + _RESOLUTION) / -math.log(_RESOLUTION)
    return jnp.concatenate([t[None], remaining[None], jnp.sin(angles), jnp.cos(angles)])
