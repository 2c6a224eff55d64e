"""The default drift, with a function of each coordinate alone on top."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.time_mlp import LARGEST_NOISE, LARGEST_WIDTH, TimeMLP, bounded, time_features
from follmer.paths import Control

# Where a coordinate's units begin: centres over two standard deviations, and slopes in turn.
_REACH, _SLOPES = 2.0, (0.5, 1.0, 2.0, 4.0)


class Additive(eqx.Module):
    """net(t, x), and for each coordinate a few tanh units of its own, weighed by the time.

    Kinks and tails of a hundred marginals are more than one small network can tell apart. Zero at
    the start.
    """

    net: TimeMLP
    slopes: Float[Array, "dim units"]
    centres: Float[Array, "dim units"]
    weights: Float[Array, "features 3 dim units"]

    def __init__(
        self, dim: int, *, width: int = 64, depth: int = 3, units: int = 8, key: PRNGKeyArray
    ):
        self.net = TimeMLP(dim, width=width, depth=depth, key=key)
        self.slopes = jnp.tile(jnp.asarray(np.resize(_SLOPES, units)), (dim, 1))
        self.centres = jnp.tile(jnp.linspace(-_REACH, _REACH, units), (dim, 1))
        self.weights = jnp.zeros((len(time_features(jnp.zeros(()))), 3, dim, units))

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Control:
        control = self.net(t, x)
        units = jnp.tanh(self.slopes * (x[:, None] - self.centres))
        weights = jnp.tensordot(time_features(t), self.weights, axes=1)
        u, log_width, log_noise = jnp.einsum("ndm,dm->nd", weights, units)
        return Control(
            control.u + u,
            control.log_width + bounded(log_width, LARGEST_WIDTH),
            control.log_noise + bounded(log_noise, LARGEST_NOISE),
        )
