"""A drift that sees the target's own score."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.parts import change_parts
from follmer.drifts.stack import zero_linear
from follmer.drifts.time_mlp import TimeMLP, time_features
from follmer.paths import Control

Score = Callable[[Float[Array, " dim"]], Float[Array, " dim"]]

# Scores are cut at this many reference standard deviations: far out they steer, not shoot.
_LARGEST = 10.0


class ScoreGuided(eqx.Module):
    """u = net(t, x, s) + gate(t) ∘ s, with s = γ∇ ln f(x), a net that starts at 0 and gates at 1.

    The Föllmer drift is the mean of s over where the path may end, so s at the path itself is a
    first guess of it. f is the target over the reference: s = 0 where the whitened target is the
    Gaussian it was whitened by. Training does not differentiate through the score, which would
    take second derivatives of the target. With mini-batches the score is the batch's.
    """

    net: TimeMLP
    gate: eqx.nn.Linear
    score: Score | None

    def __init__(self, dim: int, *, width: int = 64, depth: int = 3, key: PRNGKeyArray):
        self.net = TimeMLP(dim, width=width, depth=depth, context=dim, key=key)
        gate = zero_linear(len(time_features(jnp.zeros(()))), dim, key)
        self.gate = eqx.tree_at(lambda linear: linear.bias, gate, jnp.ones(dim))
        self.score = None

    def guided_by(self, score: Score) -> "ScoreGuided":
        """The same drift with γ∇ ln f at hand."""
        return eqx.tree_at(lambda one: one.score, self, score, is_leaf=lambda leaf: leaf is None)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Control:
        score = jnp.zeros_like(x) if self.score is None else self.score(x)
        score = jnp.clip(jnp.where(jnp.isfinite(score), score, 0.0), -_LARGEST, _LARGEST)
        score = jax.lax.stop_gradient(score)
        control = self.net(t, x, score)
        return control._replace(u=control.u + self.gate(time_features(t)) * score)


def guide(drift: Any, score: Score) -> Any:
    """The drift with the score handed to every part that asks for it."""
    return change_parts(drift, _is_guided, lambda part: part.guided_by(score))


def _is_guided(node: Any) -> bool:
    return isinstance(node, ScoreGuided)
