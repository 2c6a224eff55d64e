"""The paper's Listings 1 and 3: a Softplus MLP of [θ, t], or of a local's [θ_i, Φ, x_i, t]."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import Stack
from follmer.drifts.tracked import AbstractTracked


class _Listing(eqx.Module):
    """A stack of layers that is shown the state, the time and, if any, the context."""

    stack: Stack

    def __call__(
        self,
        t: Float[Array, ""],
        x: Float[Array, " dim"],
        context: Float[Array, " context"] | None = None,
    ) -> Float[Array, " dim"]:
        return self.stack(t, _features(t, x, context))


class MLP(_Listing):
    """The listings without BatchNorm."""

    def __init__(
        self, dim: int, *, width: int = 300, depth: int = 4, context: int = 0, key: PRNGKeyArray
    ):
        self.stack = _stack(dim, context, width, depth, key, batch_norm=False)


class BatchNormMLP(_Listing, AbstractTracked):
    """The listings as printed. Paths share t, so BatchNorm hides the time and couples the paths."""

    def __init__(
        self, dim: int, *, width: int = 300, depth: int = 4, context: int = 0, key: PRNGKeyArray
    ):
        self.stack = _stack(dim, context, width, depth, key, batch_norm=True)

    def track(
        self,
        times: Float[Array, " steps"],
        states: Float[Array, "paths steps *rows dim"],
        weight: Float[Array | float, ""],
        context: Float[Array, "paths steps *rows context"] | None = None,
    ) -> "BatchNormMLP":
        shape = (*states.shape[:-1], 1)
        at = jnp.broadcast_to(times.reshape(1, -1, *[1] * (len(shape) - 2)), shape)
        parts = [states, at] if context is None else [states, context, at]
        inputs = jnp.concatenate(parts, axis=-1)
        stack = self.stack.track(times, inputs, weight)
        return eqx.tree_at(lambda drift: drift.stack, self, stack)


def _stack(
    dim: int, context: int, width: int, depth: int, key: PRNGKeyArray, *, batch_norm: bool
) -> Stack:
    return Stack(
        dim + context + 1,
        dim,
        width=width,
        depth=depth,
        batch_norm=batch_norm,
        of_locals=context > 0,
        key=key,
    )


def _features(
    t: Float[Array, ""], x: Float[Array, " dim"], context: Float[Array, " context"] | None
) -> Float[Array, " features"]:
    return jnp.concatenate([x, t[None]] if context is None else [x, context, t[None]])
