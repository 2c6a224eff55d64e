"""The paper's Listing 1: a Softplus MLP of [θ, t], with and without BatchNorm."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import Stack
from follmer.drifts.tracked import AbstractTracked


class MLP(eqx.Module):
    """Listing 1 without BatchNorm."""

    stack: Stack

    def __init__(self, dim: int, *, width: int = 300, depth: int = 4, key: PRNGKeyArray):
        self.stack = Stack(dim + 1, dim, width=width, depth=depth, batch_norm=False, key=key)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.stack(t, _features(t, x))


class BatchNormMLP(AbstractTracked):
    """Listing 1 as printed. Paths share t, so BatchNorm hides the time and couples the paths."""

    stack: Stack

    def __init__(self, dim: int, *, width: int = 300, depth: int = 4, key: PRNGKeyArray):
        self.stack = Stack(dim + 1, dim, width=width, depth=depth, batch_norm=True, key=key)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.stack(t, _features(t, x))

    def track(
        self, times: Float[Array, " steps"], states: Float[Array, "paths steps dim"]
    ) -> "BatchNormMLP":
        inputs = jax.vmap(jax.vmap(_features), (None, 0))(times, states)
        return eqx.tree_at(lambda drift: drift.stack, self, self.stack.track(times, inputs))


def _features(t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim+1"]:
    return jnp.append(x, t)
