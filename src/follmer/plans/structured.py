"""Where training starts for global and local variables: Laplace, with the locals integrated out.

The joint mode would mislead: p(θ|τ) is unbounded where locals and their spread τ shrink together.
"""

import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.mcmc.climbs import climb as climb_rows
from follmer.plans.plan import Plan
from follmer.plans.survey import Survey
from follmer.targets import AbstractTarget, Affine, StructuredTarget
from follmer.targets.affine import from_covariance
from follmer.targets.data import take
from follmer.targets.local import LocalLogDensity, climb, derivatives, inverse_root
from follmer.tools.keys import generator
from follmer.tools.programs import compiled

# Data points from which the globals are located first, and that are seen at once.
_ROWS_AT_ONCE = 1024
# Newton steps of a local for every value of the globals, from where it was at the first.
_LOCAL_STEPS = 8
# Of a local; where there is less, it is taken to be 1.
_LEAST_CURVATURE = 1e-3
# The globals' curvature: first probed at this distance, then at their own widths, up to the widest.
_FIRST_WIDTH, _WIDEST, _REFINEMENTS = 1e-2, 5.0, 4
_BATCH, _NUM_PATHS, _NUM_STEPS, _NUM_ITERATIONS = 128, 4, 8, 1000


def structured(survey: Survey, key: PRNGKeyArray, affine: Affine | None = None) -> Plan:
    """Globals and locals in the coordinates of Laplace approximations, or of a given affine map."""
    target: StructuredTarget = survey.target  # type: ignore[assignment]
    size = min(_BATCH, target.num_data)
    settings = {
        **batch_settings(target),
        "num_paths": _NUM_PATHS,
        "num_steps": _NUM_STEPS,
        "grid": "uniform",
        "drift_options": {"width": 32},
        "num_iterations": _NUM_ITERATIONS,
        "learning_rate": 5e-3,
    }
    why = f"globals and the locals of {target.num_data} data points, {size} at a time"
    if affine is not None:
        why += ", whitened by the given affine map"
    else:
        affine = by_marginal(survey, key)
        why += ": whitened by curvature, the locals integrated out"
    whitened = target.whitened(affine, progress=survey.progress)
    return Plan("structured", whitened, settings, why)


def batch_settings(target: AbstractTarget) -> dict[str, object]:
    """The batch of a training step, and what gradients are clipped at."""
    num_data = target.num_data or 1
    # Gradients grow with the data that they stand for.
    return {
        "batch_size": None if num_data <= _BATCH else _BATCH,
        "clip_norm": 10.0 * num_data,
    }


def by_marginal(survey: Survey, key: PRNGKeyArray) -> Affine:
    """The globals' Laplace approximation once every local is integrated out by its own."""
    target: StructuredTarget = survey.target  # type: ignore[assignment]
    marginal = _Marginal(target)
    num_rows = min(_ROWS_AT_ONCE, target.num_data)
    chosen = generator(key, "rows").choice(target.num_data, num_rows, replace=False)
    rows = take(target.data.data, chosen)
    origin = np.zeros(target.global_dim, target.dtype)
    starts = target.frames(jnp.asarray(origin), rows, progress=survey.progress).mean

    one_by_one = _OneByOne(lambda y: marginal(y.astype(target.dtype), rows, starts))
    ends = climb_rows(one_by_one, origin[None])
    survey.density.gradient_evaluations += one_by_one.gradient_evaluations
    if len(ends.x) == 0:
        raise InputError(
            "no values of the globals were found where the data have a finite density.",
            hint="target.check(key=…), or precondition='identity'",
        )
    mode = jnp.asarray(ends.x[0], target.dtype)
    affine = _gaussian(lambda y: marginal(y, rows, starts)[1], mode)
    if num_rows < target.num_data:
        # The mode of some data points is many standard deviations off that of all.
        starts = target.frames(affine.mean, target.data.data, progress=survey.progress).mean
        slope = np.asarray(marginal(affine.mean, target.data.data, starts)[1], float)
        factor = np.asarray(affine.matrix, float)
        moved = jnp.asarray(affine.mean + factor @ (factor.T @ slope), target.dtype)
        affine = eqx.tree_at(lambda one: one.mean, affine, moved)
    return affine


class _OneByOne:
    """A density for climbs, evaluated at a point at a time."""

    def __init__(self, value_and_gradient: Callable[[np.ndarray], tuple[Array, Array]]):
        self._value_and_gradient = value_and_gradient
        self.most, self.gradient_evaluations = 1, 0

    def run(self, y: np.ndarray, _: np.ndarray) -> tuple[Array, Array]:
        """The value and the gradient at the one row."""
        value, gradient = self._value_and_gradient(y[0])
        return value[None], gradient[None]


class _Marginal:
    """ln p(Φ) + (N/B) Σ ln p(x_i|Φ), locals integrated out, and its gradient."""

    def __init__(self, target: StructuredTarget):
        self._target = target

    def __call__(
        self,
        y: Float[Array | np.ndarray, " global"],
        rows: PyTree,
        starts: Float[Array, "rows local"],
    ) -> tuple[Array, Array]:
        y = jnp.asarray(y)
        value, gradient = _of_globals(self._target, y)
        scaling = self._target.num_data / len(starts)
        for start in range(0, len(starts), _ROWS_AT_ONCE):
            some = slice(start, start + _ROWS_AT_ONCE)
            part = jax.tree.map(lambda array, some=some: array[some], rows)
            more, slope = _of_rows(self._target, y, part, starts[some])
            value, gradient = value + scaling * more, gradient + scaling * slope
        return value, gradient


@compiled
def _of_globals(target: StructuredTarget, y: Float[Array, " global"]) -> tuple[Array, Array]:
    return jax.value_and_grad(target.free_log_densities()[1])(y)


@compiled
def _of_rows(
    target: StructuredTarget, y: Float[Array, " global"], rows: PyTree, starts: Array
) -> tuple[Array, Array]:
    log_local, _ = target.free_log_densities()

    def evidence(y: Array) -> Float[Array, ""]:
        one = functools.partial(_local_evidence, log_local, y)
        return jnp.sum(jax.vmap(one)(rows, starts))

    return jax.value_and_grad(evidence)(y)


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
    return log_density(mode, y, row) + 0.5 * len(mode) * math.log(2 * math.pi) + log_det
