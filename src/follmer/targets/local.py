"""Where one local lies: its conditional mode, its curvature, how both follow the globals."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

# ln p(θ_i, x_i | Φ) in free coordinates: a function of (local, globals, row).
LocalLogDensity = Callable[[Array, Array, PyTree], Float[Array, ""]]

# Newton steps from every start, and from the best of where they lead.
_FIRST_STEPS, _LAST_STEPS = 8, 12
_NUM_STARTS = 4
# Fractions of a Newton step that are tried, and the longest step.
_FRACTIONS = (1.0, 0.5, 0.2, 0.05, 0.0)
_LONGEST = 3.0
# Nats that a Newton step must promise, twice over, for another to be taken.
_SMALLEST_GAIN = 1e-6
# Free coordinates are made to be of order one: no direction is taken to be wider than this.
_WIDEST = 5.0
# Locals of more dimensions follow the globals to first order only.
_MAX_FOLLOWED = 8
# Relative to the frame's own.
_LEAST_CURVATURE = 1e-2


class Frame(eqx.Module):
    """A local's Laplace fit N(mean, factor factorᵀ) at Φ̂, whose mean follows Φ by `tilt`."""

    mean: Float[Array, "*rows local"]
    tilt: Float[Array, "*rows local global"]
    factor: Float[Array, "*rows local local"]


class Placement(NamedTuple):
    """θ = mean + factor z for one value of the globals."""

    mean: Float[Array, " local"]
    factor: Float[Array, "local local"]
    log_det: Float[Array, ""]

    def __call__(self, z: Float[Array, " local"]) -> Float[Array, " local"]:
        return self.mean + self.factor @ z

    def inverse(self, x: Float[Array, " local"]) -> Float[Array, " local"]:
        return jnp.linalg.solve(self.factor, x - self.mean)


def local_frame(
    log_density: LocalLogDensity, dim: int, shared: Float[Array, " global"], row: PyTree
) -> Frame:
    """The frame at the highest mode that a few climbs find."""
    starts = _starts(dim, shared.dtype)
    ends = jax.vmap(lambda x: climb(log_density, shared, row, x, _FIRST_STEPS))(starts)
    values = jax.vmap(lambda x: log_density(x, shared, row))(ends)
    best = ends[jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))]
    mode = climb(log_density, shared, row, best, _LAST_STEPS)
    precision, axes = _positive(-derivatives(log_density, shared, row, mode)[1])
    coupling = jax.jacfwd(jax.grad(log_density), argnums=1)(mode, shared, row)
    tilt = axes @ ((axes.T @ coupling) / precision[:, None])
    return Frame(mode, tilt, axes / jnp.sqrt(precision))


def follow(
    frame: Frame,
    log_density: LocalLogDensity,
    shared: Float[Array, " global"],
    shift: Float[Array, " global"],
    row: PyTree,
) -> Placement:
    """The frame at Φ = Φ̂ + shift: a Newton step from where the tilt points, and curvature there.

    Whatever is found, it depends on Φ and the data point alone, which is all that an exact change
    of variables needs.
    """
    mean, dim = frame.mean + frame.tilt @ shift, len(frame.mean)
    if dim > _MAX_FOLLOWED:
        return Placement(mean, frame.factor, jnp.linalg.slogdet(frame.factor)[1])
    gradient, hessian = derivatives(log_density, shared, row, mean)
    root = inverse_root(-frame.factor.T @ hessian @ frame.factor, _LEAST_CURVATURE)
    step = root.T @ (root @ (frame.factor.T @ gradient))
    step *= jnp.minimum(1.0, _LONGEST / jnp.sqrt(jnp.sum(step**2) + 1e-12))
    mean += frame.factor @ jnp.where(jnp.isfinite(step), step, 0.0)
    log_det = jnp.linalg.slogdet(frame.factor)[1] + jnp.sum(jnp.log(jnp.diag(root)))
    return Placement(mean, frame.factor @ root.T, log_det)


def derivatives(
    log_density: LocalLogDensity, shared: Array, row: PyTree, x: Array
) -> tuple[Float[Array, " local"], Float[Array, "local local"]]:
    """Gradient and Hessian, traced together: bijections are slow to differentiate and compile."""
    gradient, directional = jax.linearize(lambda x: jax.grad(log_density)(x, shared, row), x)
    return gradient, jax.vmap(directional)(jnp.eye(len(x), dtype=x.dtype))


def inverse_root(
    precision: Float[Array, "local local"], least: float
) -> Float[Array, "local local"]:
    """R with Rᵀ R = precision⁻¹, lower triangular; I where curvature is not above `least`."""
    precision = 0.5 * (precision + precision.T)
    identity = jnp.eye(len(precision), dtype=precision.dtype)
    lower = _cholesky(jax.lax.stop_gradient(precision) - least * identity)
    return _inverse(_cholesky(jnp.where(jnp.isfinite(lower).all(), precision, identity)))


def _cholesky(matrix: Float[Array, "local local"]) -> Float[Array, "local local"]:
    """L with L Lᵀ = matrix, not finite where there is none; written out for small matrices.

    LAPACK's triangular solves, in derivatives too, can deadlock jaxlib's CPU thread pool when many
    small ones run at once.
    """
    columns: list[Array] = []
    for j in range(len(matrix)):
        rest = matrix[:, j] - sum(
            (column * column[j] for column in columns), jnp.zeros((), matrix.dtype)
        )
        rest = jnp.where(np.arange(len(matrix)) < j, 0.0, rest)
        columns.append(rest / jnp.sqrt(rest[j]))
    return jnp.stack(columns, axis=1)


def _inverse(lower: Float[Array, "local local"]) -> Float[Array, "local local"]:
    """Of a lower triangular matrix, by forward substitution."""
    rows: list[Array] = []
    for i, unit in enumerate(np.eye(len(lower))):
        known = sum((lower[i, j] * row for j, row in enumerate(rows)), jnp.zeros((), lower.dtype))
        rows.append((jnp.asarray(unit, lower.dtype) - known) / lower[i, i])
    return jnp.stack(rows)


def climb(
    log_density: LocalLogDensity,
    shared: Float[Array, " global"],
    row: PyTree,
    start: Float[Array, " local"],
    num_steps: int,
) -> Float[Array, " local"]:
    """Newton's method, made safe: uphill in every direction, never downhill in value.

    Up to `num_steps` steps; vmapped, all rows wait for the last to arrive.
    """

    def value(x: Array) -> Array:
        found = log_density(x, shared, row)
        return jnp.where(jnp.isfinite(found), found, -jnp.inf)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        count, _, gain = carry
        return (count < num_steps) & (gain > _SMALLEST_GAIN)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, x, _ = carry
        step, gain = _newton_step(log_density, shared, row, x)
        step *= jnp.minimum(1.0, _LONGEST / (jnp.linalg.norm(step) + 1e-12))
        tried = x + jnp.asarray(_FRACTIONS, x.dtype)[:, None] * step
        return count + 1, tried[jnp.argmax(jax.vmap(value)(tried))], gain

    begin = (jnp.zeros((), jnp.int32), start, jnp.asarray(jnp.inf, start.dtype))
    return jax.lax.while_loop(unfinished, body, begin)[1]


def _newton_step(
    log_density: LocalLogDensity,
    shared: Float[Array, " global"],
    row: PyTree,
    x: Float[Array, " local"],
) -> tuple[Float[Array, " local"], Float[Array, ""]]:
    """The step to the top of the quadratic, with curvatures taken as positive, and its slope."""
    gradient, hessian = derivatives(log_density, shared, row, x)
    precision, axes = _positive(-hessian)
    step = axes @ ((axes.T @ gradient) / precision)
    step = jnp.where(jnp.isfinite(step), step, 0.0)
    return step, jnp.nan_to_num(step @ gradient)


def _positive(matrix: Float[Array, "local local"]) -> tuple[Array, Array]:
    """Eigenvalues made positive, and eigenvectors."""
    matrix = jnp.where(jnp.isfinite(matrix), matrix, 0.0)
    values, axes = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    return jnp.maximum(jnp.abs(values), _WIDEST**-2), axes


def _starts(dim: int, dtype: jnp.dtype) -> Float[Array, "starts local"]:
    """0 and some scattered points, the same for every row."""
    scattered = np.random.default_rng(0).normal(size=(_NUM_STARTS - 1, dim))
    return jnp.asarray(np.concatenate([np.zeros((1, dim)), scattered]), dtype)
