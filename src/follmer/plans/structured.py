"""Where training starts for global and local variables: Laplace, with the locals integrated out.

The joint mode would mislead: p(θ|τ) is unbounded where locals and their spread τ shrink together.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError, closest
from follmer.mcmc import climbs as modes
from follmer.plans.start import Start
from follmer.targets import Affine, StructuredTarget
from follmer.targets.affine import from_covariance
from follmer.targets.data import take
from follmer.targets.local import LocalLogDensity, climb, derivatives, inverse_root

# Data points from which the globals are located first, and that are seen at once.
_ROWS_AT_ONCE = 1024
# Newton steps of a local for every value of the globals, from where it was at the first.
_LOCAL_STEPS = 8
# Of a local; where there is less, it is taken to be 1.
_LEAST_CURVATURE = 1e-3
# The globals' curvature: first probed at this distance, then at their own widths, up to the widest.
_FIRST_WIDTH, _WIDEST, _REFINEMENTS = 1e-2, 5.0, 4
_BATCH, _NUM_PATHS, _NUM_STEPS, _NUM_ITERATIONS = 128, 4, 8, 1000


def structured_start(precondition: Any, target: StructuredTarget, key: PRNGKeyArray) -> Start:
    """Own coordinates, or those of a Laplace approximation of globals and of each local."""
    size = min(_BATCH, target.num_data)
    settings = {
        "batch_size": None if size == target.num_data else size,
        "num_paths": _NUM_PATHS,
        "num_steps": _NUM_STEPS,
        "grid": "uniform",
        "drift_options": {"width": 32},
        "num_iterations": _NUM_ITERATIONS,
        "learning_rate": 5e-3,
        # Gradients grow with the data that they stand for.
        "clip_norm": 10.0 * target.num_data,
    }
    words = f"globals and the locals of {target.num_data} data points, {size} at a time"
    if isinstance(precondition, Affine):
        return Start(precondition, settings, f"{words}, whitened by the given affine map")
    known = ("auto", "identity", "laplace")
    if precondition not in known:
        raise InputError(
            f"precondition={precondition!r} is not for structured targets.",
            hint=f"{closest(str(precondition), known)}; or a follmer.Affine of the globals",
        )
    if precondition == "identity":
        return Start(None, {name: settings[name] for name in ("batch_size", "clip_norm")}, words)
    return by_marginal(target, key)._replace(
        settings=settings, words=f"{words}: whitened by curvature, the locals integrated out"
    )


def by_marginal(target: StructuredTarget, key: PRNGKeyArray) -> Start:
    """The globals' Laplace approximation once every local is integrated out by its own."""
    marginal = _Marginal(target)
    num_rows = min(_ROWS_AT_ONCE, target.num_data)
    chosen = jax.random.choice(key, target.num_data, (num_rows,), replace=False)
    rows = take(target.data.data, chosen)
    origin = jnp.zeros(target.global_dim, target.dtype)
    starts = target.frames(origin, rows).mean
    ends = modes.ascend(lambda y: marginal(y, rows, starts), np.asarray(origin)[None])
    if len(ends.x) == 0:
        raise InputError(
            "no values of the globals were found where the data have a finite density.",
            hint="target.check(key=…), or precondition='identity'",
        )
    affine = _gaussian(lambda y: marginal(y, rows, starts)[1], jnp.asarray(ends.x[0]))
    if num_rows < target.num_data:
        # The mode of some data points is many standard deviations off that of all.
        starts = target.frames(affine.mean, target.data.data).mean
        slope = np.asarray(marginal(affine.mean, target.data.data, starts)[1], float)
        factor = np.asarray(affine.matrix, float)
        moved = jnp.asarray(affine.mean + factor @ (factor.T @ slope), target.dtype)
        affine = eqx.tree_at(lambda one: one.mean, affine, moved)
    return Start(affine, {}, "", None, ends.gradient_evaluations)


class _Marginal:
    """ln p(Φ) + (N/B) Σ ln p(x_i|Φ), locals integrated out, and its gradient; compiled once."""

    def __init__(self, target: StructuredTarget):
        log_local, log_global = target.free_log_densities()

        def evidence(y: Array, rows: PyTree, starts: Array) -> Float[Array, ""]:
            one = functools.partial(_local_evidence, log_local, y)
            return jnp.sum(jax.vmap(one)(rows, starts))

        self._num_data = target.num_data
        self._of_rows = jax.jit(jax.value_and_grad(evidence))
        self._of_globals = jax.jit(jax.value_and_grad(log_global))

    def __call__(
        self,
        y: Float[Array | np.ndarray, " global"],
        rows: PyTree,
        starts: Float[Array, "rows local"],
    ) -> tuple[Array, Array]:
        value, gradient = self._of_globals(y)
        scaling = self._num_data / len(starts)
        for start in range(0, len(starts), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            part = jax.tree.map(lambda array, some=some: array[some], rows)
            more, slope = self._of_rows(y, part, starts[some])
            value, gradient = value + scaling * more, gradient + scaling * slope
        return value, gradient


def _gaussian(gradient: Callable[[Array], Array], mode: Float[Array, " global"]) -> Affine:
    """N(mode, H⁻¹) by secants of the gradient across ± one standard deviation.

    Not `laplace`, which differentiates further: the marginal is made of second derivatives, and
    those of bijections such as a simplex's take minutes to compile.
    """
    widths = np.full(len(mode), _FIRST_WIDTH)
    for _ in range(_REFINEMENTS):
        shifts = jnp.asarray(np.diag(widths), mode.dtype)
        secants = [np.asarray(gradient(mode - one) - gradient(mode + one), float) for one in shifts]
        precision = np.stack(secants) / (2 * widths[:, None])
        precision = np.where(np.isfinite(precision), 0.5 * (precision + precision.T), 0.0)
        values, axes = np.linalg.eigh(precision)
        covariance = (axes / np.maximum(np.abs(values), _WIDEST**-2)) @ axes.T
        step = covariance @ np.asarray(gradient(mode), float)
        if np.isfinite(step).all():
            mode += jnp.asarray(step * min(1.0, 1.0 / (1e-12 + np.linalg.norm(step))), mode.dtype)
        widths = np.sqrt(np.diag(covariance))
    return from_covariance(mode, covariance, mode.dtype)


def _local_evidence(
    log_density: LocalLogDensity, y: Float[Array, " global"], row: PyTree, start: Array
) -> Float[Array, ""]:
    """ln ∫ p(θ, x|Φ) dθ by Laplace's method; its gradient in Φ knows that the mode moves."""

    mode = climb(log_density, jax.lax.stop_gradient(y), row, start, _LOCAL_STEPS)
    mode = jax.lax.stop_gradient(mode)
    # One step that is differentiated: the implicit function theorem.
    gradient, hessian = derivatives(log_density, y, row, mode)
    root = inverse_root(-hessian, _LEAST_CURVATURE)
    mode += root.T @ (root @ gradient)
    root = inverse_root(-derivatives(log_density, y, row, mode)[1], _LEAST_CURVATURE)
    log_det = jnp.sum(jnp.log(jnp.diag(root)))
    return log_density(mode, y, row) + 0.5 * len(mode) * np.log(2 * np.pi) + log_det
