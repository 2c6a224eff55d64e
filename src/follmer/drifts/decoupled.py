"""One amortised network steers the local variable of every data point."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.parts import change_parts
from follmer.drifts.stack import LOCALS_AXIS, linears
from follmer.drifts.tracked import AbstractTracked, is_tracked, track
from follmer.paths import Control, as_control

_ENCODED = 32


class Encoder(eqx.Module):
    """What the local network is told of a data point: computed once, whatever paths and times."""

    hidden: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, num_features: int, width: int, key: PRNGKeyArray):
        self.hidden, self.last = linears([(num_features, width), (width, _ENCODED)], key)

    @property
    def size(self) -> int:
        return self.last.weight.shape[0]

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, " encoded"]:
        return self.last(jax.nn.silu(self.hidden(features)))


class Decoupled(AbstractTracked):
    """[u]_Φ = u_0(t, Φ) and [u]_{θ_i} = u_1(t, θ_i, Φ, x_i), one network u_1 for all i.

    `shared` maps (t, Φ) and `local` maps (t, θ_i, [Φ, x_i]) to a drift or a `Control`; `encoder`
    condenses x_i first. The state is Φ followed by as many locals as data points are `seen`. The
    local network sees Φ in its own `unit`, so that many locals together do not pin the globals down
    by responding to what for each of them is nothing.
    """

    shared: Any
    local: Any
    encoder: Encoder | None
    global_dim: int = eqx.field(static=True)
    local_dim: int = eqx.field(static=True)
    unit: float = eqx.field(static=True, default=1.0)
    seen: Float[Array, "rows encoded"] | None = None

    def seeing(self, features: Float[Array, "rows features"]) -> "Decoupled":
        """The same drift for the locals of these data points."""
        encoded = features if self.encoder is None else jax.vmap(self.encoder)(features)
        return eqx.tree_at(lambda one: one.seen, self, encoded, is_leaf=lambda leaf: leaf is None)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Control:
        shared, locals_ = self.split(x)
        own = as_control(self.shared(t, shared))
        if self.seen is None or len(locals_) == 0:
            return own

        def one(theta: Float[Array, " local"], datum: Float[Array, " encoded"]) -> Control:
            return as_control(self.local(t, theta, jnp.concatenate([shared / self.unit, datum])))

        theirs = jax.vmap(one, axis_name=LOCALS_AXIS)(locals_, self.seen)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b.ravel()]), own, theirs)

    @property
    def has_statistics(self) -> bool:
        return is_tracked((self.shared, self.local))

    def track(
        self,
        times: Float[Array, " steps"],
        states: Float[Array, "paths steps dim"],
        weight: Float[Array | float, ""],
    ) -> "Decoupled":
        shared, locals_ = jax.vmap(jax.vmap(self.split))(states)
        tracked = {"shared": track(self.shared, times, shared, weight), "seen": None}
        if is_tracked(self.local):
            assert self.seen is not None
            context = jnp.concatenate(
                [
                    jnp.broadcast_to(part, (*locals_.shape[:-1], part.shape[-1]))
                    for part in (shared[:, :, None] / self.unit, self.seen)
                ],
                axis=-1,
            )
            tracked["local"] = self.local.track(times, locals_, weight, context)
        return dataclasses.replace(self, **tracked)

    def split(
        self, x: Float[Array, " dim"]
    ) -> tuple[Float[Array, " global"], Float[Array, "rows local"]]:
        """Globals and locals of a state."""
        return x[: self.global_dim], x[self.global_dim :].reshape(-1, self.local_dim)


def bind_batch(drift: Any, features: Float[Array, "rows features"] | None) -> Any:
    """The drift with a batch's data points handed to every part that asks for them."""
    if features is None:
        return drift
    return change_parts(drift, _is_decoupled, lambda part: part.seeing(features))


def _is_decoupled(node: Any) -> bool:
    return isinstance(node, Decoupled)
