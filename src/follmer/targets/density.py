"""A target seen from the host: values and gradients at many points, and whether they are finite."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.errors import NonFiniteError
from follmer.targets.abstract import AbstractTarget
from follmer.targets.data import named_arrays
from follmer.targets.space import named_leaves
from follmer.tools.checks import fraction, positive_float, positive_int
from follmer.tools.keys import normals
from follmer.tools.mesh import DATA, PATHS, over, width
from follmer.tools.programs import bound, compiled

# Points that a device evaluates together: where each is cheap, and where each takes long.
_AT_ONCE, _FEW_AT_ONCE = 64, 8
# Blocks of such points that one call takes, and numbers that it takes at most.
_BLOCKS, _NUMBERS = 64, 2**17
# Operations per gradient from which points are evaluated in few at a time.
_EXPENSIVE = 1e6


class Density:
    """Log density and gradient of a target at rows of points, as NumPy arrays; counts gradients.

    A loop of many evaluations calls `run` itself, with `most` rows of points and how many of them
    count, and adds to `gradient_evaluations` when it is done.
    """

    def __init__(self, target: AbstractTarget):
        self.target = target
        self.dim, self.dtype = target.dim, target.dtype
        self.gradient_evaluations = 0
        at_once = _AT_ONCE if target.gradient_cost <= _EXPENSIVE else _FEW_AT_ONCE
        at_once *= width(PATHS)
        self.most = at_once * int(np.clip(_NUMBERS // (at_once * self.dim), 1, _BLOCKS))
        self.run = bound(_of_points, target, at_once)

    def __call__(
        self, x: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """Values and gradients at the points, in double precision."""
        self.gradient_evaluations += len(x)
        parts = [self._of_some(x[i : i + self.most]) for i in range(0, len(x), self.most)]
        if not parts:
            return np.zeros(0), np.zeros((0, self.dim))
        values, gradients = (np.concatenate(column) for column in zip(*parts, strict=True))
        return values.astype(float), gradients.astype(float)

    def _of_some(self, x: Float[np.ndarray, "some dim"]) -> tuple[np.ndarray, np.ndarray]:
        """Filled up by the last point, so that any number of points takes one program."""
        filled = np.pad(x, ((0, self.most - len(x)), (0, 0)), "edge")
        values, gradients = self.run(filled, np.asarray(len(x)))
        return np.asarray(values)[: len(x)], np.asarray(gradients)[: len(x)]

    def values(self, x: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """Log densities alone."""
        return self(x)[0]


@compiled
def _of_points(
    target: AbstractTarget,
    at_once: int,
    x: Float[Array | np.ndarray, "points dim"],
    count: Int[Array | np.ndarray, ""],
) -> tuple[Float[Array, " points"], Float[Array, "points dim"]]:
    """Log density and gradient at the first `count` points, some at once; zeros after them."""
    blocks = jnp.asarray(x, target.dtype).reshape(-1, at_once, target.dim)

    def body(i: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        values, gradients = values_and_gradients(target, blocks[i])
        return found[0].at[i].set(values), found[1].at[i].set(gradients)

    nothing = jnp.zeros(blocks.shape[:2], target.dtype), jnp.zeros(blocks.shape, target.dtype)
    values, gradients = jax.lax.fori_loop(0, -(-count // at_once), body, nothing)
    return values.ravel(), gradients.reshape(x.shape)


@compiled
def values_and_gradients(
    target: AbstractTarget, x: Float[Array | np.ndarray, "points dim"]
) -> tuple[Float[Array, " points"], Float[Array, "points dim"]]:
    """The target's log density and its gradient at each point."""
    return jax.vmap(jax.value_and_grad(target.log_density))(over(PATHS, jnp.asarray(x)))


@compiled
def values_by_batch(
    target: AbstractTarget, x: Float[Array, "points dim"], batch: PyTree
) -> Float[Array, " points"]:
    """The target's log density at each point, as a batch of its data tells it."""
    return jax.vmap(lambda x: target.log_density(x, over(DATA, batch)))(over(PATHS, x))


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
    density = Density(target)
    xs = scale * normals(key, "check", (num_draws, density.dim), density.dtype)
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
