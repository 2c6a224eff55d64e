"""The pre-flight: is the density finite, with a finite gradient, where training will start?"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, PyTree

from follmer.errors import NonFiniteError
from follmer.targets.abstract import AbstractTarget
from follmer.targets.data import named_arrays
from follmer.targets.density import Density
from follmer.targets.space import named_leaves
from follmer.tools.checks import fraction, positive_float, positive_int
from follmer.tools.keys import normals


class CheckReport(NamedTuple):
    """What a passed pre-flight saw."""

    num_draws: int
    log_density_min: float
    log_density_max: float
    gradient_norm_max: float


def preflight(
    target: AbstractTarget,
    key: PRNGKeyArray,
    num_draws: int,
    scale: float,
    tolerated: float,
    data: PyTree = None,
) -> CheckReport:
    """Raise NonFiniteError unless density and gradient are finite at draws of N(0, scale² I).

    `data` are the user's own, where those of the target are made of them.
    """
    num_draws = positive_int("num_draws", num_draws)
    scale = positive_float("scale", scale)
    most = fraction("tolerated", tolerated) * num_draws
    xs = scale * normals(key, "check", (num_draws, target.dim), target.dtype)
    density = Density(target)
    values, gradients = density(xs)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size > most:
        good = np.flatnonzero(np.isfinite(values))
        sound = xs[good[0]] if good.size else np.zeros_like(xs[0])
        leaf = _offending_leaf(density, xs[bad[0]], sound)
        raise NonFiniteError(
            f"the log density is not finite at {bad.size} of {num_draws} starting draws; first: "
            f"{float(values[bad[0]])} at {_show(target, xs[bad[0]])}"
            + (f", because of leaf {leaf}." if leaf else "."),
            cause=_missing_values(target.data if data is None else data)
            or "the draw lies outside the density's support, or a term overflows there",
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


def _missing_values(data: PyTree) -> str:
    """Which arrays of the data hold values that are not finite, and in which rows."""
    found = []
    for name, leaf in named_arrays(data):
        bad = missing_rows(leaf)
        if bad.size:
            rows = ", ".join(map(str, bad[:5]))
            more = f" and {bad.size - 5} more" if bad.size > 5 else ""
            where = "`data`" if leaf is data else f"{name} in `data`"
            found.append(f"{where} is not finite in row {rows}{more}")
    return "; ".join(found)


def missing_rows(array: Any) -> Int[np.ndarray, " rows"]:
    """The rows of an array that hold values that are not finite."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return np.zeros(0, int)  # rows of other processes are not looked at
    values = np.asarray(array)
    return np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))


def _offending_leaf(
    density: Density, x: Float[np.ndarray, " dim"], sound: Float[np.ndarray, " dim"]
) -> str | None:
    """The leaf that makes the density finite again when taken from a sound draw."""
    for leaf in density.target.space.leaves:
        mended = x.copy()
        mended[leaf.start : leaf.stop] = sound[leaf.start : leaf.stop]
        if np.isfinite(density.values(mended[None])[0]):
            return leaf.name
    return None


def _show(target: AbstractTarget, x: Float[np.ndarray, " dim"]) -> str:
    shown = [
        f"{name}={np.array2string(np.asarray(jnp.ravel(value)), precision=4, threshold=6)}"
        for name, value in named_leaves(target.constrain(jnp.asarray(x)))
    ]
    return ", ".join(shown[:4])
