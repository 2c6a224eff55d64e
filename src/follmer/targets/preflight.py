"""The pre-flight: is the density finite, with a finite gradient, where training will start?"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.errors import NonFiniteError
from follmer.targets.space import named_leaves
from follmer.tools.checks import fraction, positive_float, positive_int
from follmer.tools.host import normals

if TYPE_CHECKING:
    from follmer.targets.target import Target


class CheckReport(NamedTuple):
    """What a passed pre-flight saw."""

    num_draws: int
    log_density_min: float
    log_density_max: float
    gradient_norm_max: float


def preflight(
    target: "Target", key: PRNGKeyArray, num_draws: int, scale: float, tolerated: float
) -> CheckReport:
    """Raise NonFiniteError unless density and gradient are finite at draws of N(0, scale² I)."""
    num_draws = positive_int("num_draws", num_draws)
    scale = positive_float("scale", scale)
    most = fraction("tolerated", tolerated) * num_draws
    xs = jnp.asarray(scale * normals(key, (num_draws, target.dim), target.dtype))

    @jax.jit
    def evaluate(xs: Array, data: Any) -> tuple[Array, Array]:
        return jax.vmap(jax.value_and_grad(lambda x: target.log_density(x, data)))(xs)

    values, gradients = map(np.asarray, evaluate(xs, target.data))
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size > most:
        good = np.flatnonzero(np.isfinite(values))
        sound = xs[good[0]] if good.size else jnp.zeros_like(xs[0])
        leaf = _offending_leaf(target, xs[bad[0]], sound)
        raise NonFiniteError(
            f"the log density is not finite at {bad.size} of {num_draws} starting draws; first: "
            f"{float(values[bad[0]])} at {_show(target, xs[bad[0]])}"
            + (f", because of leaf {leaf}." if leaf else "."),
            cause="the draw lies outside the density's support, or a term overflows there",
            hint="constraints={...} for parameters that are bounded; 64-bit floats; other units",
        )
    finite = np.isfinite(gradients)
    bad = np.flatnonzero(~finite.all(axis=1))
    if bad.size > most:
        leaf = target.space.leaf_of(int(np.flatnonzero(~finite[bad[0]])[0])).name
        raise NonFiniteError(
            f"the gradient of the log density is not finite at {bad.size} of {num_draws} starting "
            f"draws; first: in leaf {leaf} at {_show(target, xs[bad[0]])}.",
            cause="a kink or an infinite branch, e.g. sqrt, norm or log at 0, or jnp.where over "
            "a branch that is not finite",
            hint="a finite value in both branches of jnp.where; a smoother form of that term",
        )
    values = values[np.isfinite(values)]
    norms = np.linalg.norm(gradients[finite.all(axis=1)].astype(float), axis=1)
    return CheckReport(num_draws, float(values.min()), float(values.max()), float(norms.max()))


def _offending_leaf(
    target: "Target", x: Float[Array, " dim"], sound: Float[Array, " dim"]
) -> str | None:
    """The leaf that makes the density finite again when taken from a sound draw."""
    for leaf in target.space.leaves:
        mended = x.at[leaf.start : leaf.stop].set(sound[leaf.start : leaf.stop])
        if np.isfinite(target.log_density(mended)):
            return leaf.name
    return None


def _show(target: "Target", x: Float[Array, " dim"]) -> str:
    shown = [
        f"{name}={np.array2string(np.asarray(jnp.ravel(value)), precision=4, threshold=6)}"
        for name, value in named_leaves(target.constrain(x))
    ]
    return ", ".join(shown[:4])
