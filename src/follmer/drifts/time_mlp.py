"""The default drift: an MLP that sees the time, beside a time-dependent linear pull."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import zero_linear

_NUM_FREQUENCIES = 4


class TimeMLP(eqx.Module):
    """u(t, x) = net(x, features(t)) + pull(t) ∘ x, zero at the start.

    A Gaussian's Föllmer drift is linear in x with a coefficient that varies in t; the pull has that
    form, so the network is left with what is not Gaussian.
    """

    first: eqx.nn.Linear
    time: eqx.nn.Linear
    hidden: tuple[eqx.nn.Linear, ...]
    last: eqx.nn.Linear
    pull: eqx.nn.Linear

    def __init__(self, dim: int, *, width: int = 64, depth: int = 3, key: PRNGKeyArray):
        first, time, last, pull, *rest = jax.random.split(key, depth + 3)
        self.first = eqx.nn.Linear(dim, width, key=first)
        self.time = eqx.nn.Linear(2 * _NUM_FREQUENCIES + 1, 2 * width, key=time)
        self.hidden = tuple(eqx.nn.Linear(width, width, key=one) for one in rest)
        self.last = zero_linear(width, dim, last)
        self.pull = zero_linear(width, dim, pull)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        into_net, into_pull = jnp.split(self.time(_time_features(t)), 2)
        h = jax.nn.silu(self.first(x) + into_net)
        for layer in self.hidden:
            h = h + jax.nn.silu(layer(h))
        return self.last(h) + self.pull(jax.nn.silu(into_pull)) * x


def _time_features(t: Float[Array, ""]) -> Float[Array, " features"]:
    angles = t * jnp.asarray(np.pi * np.arange(1, _NUM_FREQUENCIES + 1), t.dtype)
    return jnp.concatenate([t[None], jnp.sin(angles), jnp.cos(angles)])
