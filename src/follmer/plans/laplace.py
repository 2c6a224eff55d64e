"""Gaussian approximations at a point, by curvature."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer.mcmc.hmc import LogDensity
from follmer.targets.affine import Affine, from_covariance
from follmer.tools.host import normals

# Scales of directions without curvature end here, relative to the median direction's.
_WIDEST = 1e4
_REFINEMENTS, _SETTLED = 4, 0.01
_NEWTON_STEPS = 20
_CENTRING_STEPS = 10
_CENTRING_DRAWS = 64
# Nats by which a Newton climb must better the mode to be worth a second look at the curvature.
_NEWTON_GAIN = 0.01
# Directional derivatives taken at once; bounds memory.
_AT_ONCE = 64


def laplace(log_density: LogDensity, mode: Float[Array, " dim"], dtype: Any) -> Affine:
    """N(mode, H⁻¹), each axis of H rescaled to how the gradient really changes over its width.

    The Hessian at one point misleads at kinks (a Laplace prior has none away from 0), along flat
    directions and where it is indefinite. A secant across ± one standard deviation does not, and is
    the same where the density is Gaussian.
    """
    affine = _at(log_density, mode, dtype)
    improved = _newton(log_density, affine)
    if improved is not None:
        # A badly conditioned climb may have stopped short of the mode.
        affine = _at(log_density, improved, dtype)
    return centring(log_density)(affine)


def averaging(log_density: LogDensity) -> Callable[[Float[Array, "points dim"]], Affine]:
    """What makes a Gaussian of points, by their mean and the inverse of their mean Hessian."""
    hessian_at = mean_hessian(log_density)

    def averaged(xs: Float[Array, "points dim"]) -> Affine:
        values, axes = np.linalg.eigh(hessian_at(xs))
        covariance = (axes * _widths(values) ** 2) @ axes.T
        return from_covariance(jnp.mean(xs, axis=0), covariance, xs.dtype)

    return averaged


def centring(log_density: LogDensity) -> Callable[[Affine], Affine]:
    """What moves a Gaussian to where its mean log density is largest: from the mode to the mean.

    In many dimensions a mode is far from the mass of a skewed density.
    """

    @jax.jit
    def step(affine: Affine, z: Array, shift: Array, length: Array) -> tuple[Array, Array]:
        def value(shift: Float[Array, " dim"]) -> Float[Array, ""]:
            return jnp.mean(jax.vmap(lambda z: log_density(affine(shift + z)))(z))

        before, gradient = jax.value_and_grad(value)(shift)
        after = shift + length * gradient
        return after, value(after) - before

    def centred(affine: Affine) -> Affine:
        dtype = affine.mean.dtype
        z = normals(jax.random.key(0), (_CENTRING_DRAWS // 2, len(affine.mean)), dtype)
        z = np.concatenate([z, -z])
        shift, length = jnp.zeros_like(affine.mean), 1.0
        for _ in range(_CENTRING_STEPS):
            after, gain = step(affine, z, shift, jnp.asarray(length, dtype))
            if gain > 0:
                shift = after
            else:
                length *= 0.25
            if abs(float(gain)) < _NEWTON_GAIN or not np.isfinite(gain):
                break
        return eqx.tree_at(lambda one: one.mean, affine, affine(shift))

    return centred


def _at(log_density: LogDensity, mode: Float[Array, " dim"], dtype: Any) -> Affine:
    values, axes = np.linalg.eigh(hessian(log_density, mode))
    widths = _secant_widths(log_density, mode, axes, values)
    return from_covariance(mode, (axes * widths**2) @ axes.T, dtype)


def _newton(log_density: LogDensity, affine: Affine) -> Float[Array, " dim"] | None:
    """A better point along damped Newton steps; None where there is none."""

    def whitened(z: Float[Array, " dim"]) -> Float[Array, ""]:
        return log_density(affine(z))

    lengths = jnp.asarray(2.0 ** -np.arange(6), affine.mean.dtype)

    @jax.jit
    def climbed(z: Array) -> tuple[Array, Array]:
        def step(_: int, z: Array) -> Array:
            candidates = z + lengths[:, None] * jax.grad(whitened)(z)
            candidates = jnp.concatenate([z[None], candidates])
            values = jax.vmap(whitened)(candidates)
            return candidates[jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf))]

        end = jax.lax.fori_loop(0, _NEWTON_STEPS, step, z)
        return end, whitened(end) - whitened(z)

    z, gain = climbed(jnp.zeros_like(affine.mean))
    return affine(z) if gain > _NEWTON_GAIN else None


def diagonal_widths(log_density: LogDensity, point: Float[Array, " dim"]) -> np.ndarray:
    """The scale of each coordinate at a point, by secants."""
    dim = len(point)
    directions = jnp.eye(dim, dtype=point.dtype)
    curvature = np.asarray(
        jax.jit(
            lambda x: jax.lax.map(
                lambda v: -v @ jax.jvp(jax.grad(log_density), (x,), (v,))[1],
                directions,
                batch_size=_AT_ONCE,
            )
        )(point),
        float,
    )
    return _secant_widths(log_density, point, np.eye(dim), curvature)


def hessian(log_density: LogDensity, x: Float[Array, " dim"]) -> np.ndarray:
    """That of −ln p, with 0 where it is not finite."""
    return mean_hessian(log_density)(x[None])


def mean_hessian(log_density: LogDensity) -> Callable[[Float[Array, "points dim"]], np.ndarray]:
    """The mean over points of −ln p's Hessian, with 0 where it is not finite; compiled once."""
    gradient = jax.grad(log_density)

    @jax.jit
    def columns(xs: Array) -> Array:
        def column(v: Array) -> Array:
            return jnp.mean(jax.vmap(lambda x: jax.jvp(gradient, (x,), (v,))[1])(xs), axis=0)

        return jax.lax.map(column, jnp.eye(xs.shape[1], dtype=xs.dtype), batch_size=_AT_ONCE)

    def found(xs: Float[Array, "points dim"]) -> np.ndarray:
        hessian = -np.asarray(columns(xs), float)
        return np.where(np.isfinite(hessian), 0.5 * (hessian + hessian.T), 0.0)

    return found


def _widths(curvature: np.ndarray) -> np.ndarray:
    """1/√curvature up to a cap; the typical one where the density does not curve down."""
    curved = curvature > 0
    widths = 1.0 / np.sqrt(np.where(curved, curvature, 1.0))
    typical = np.median(widths[curved]) if curved.any() else 1.0
    return np.where(curved, np.minimum(widths, _WIDEST * typical), typical)


def _secant_widths(
    log_density: LogDensity, x: Float[Array, " dim"], axes: np.ndarray, curvature: np.ndarray
) -> np.ndarray:
    gradient = jax.grad(log_density)
    directions = jnp.asarray(axes.T, x.dtype)

    @jax.jit
    def secants(widths: Array) -> Array:
        def one(inputs: tuple[Array, Array]) -> Array:
            v, width = inputs
            ahead, behind = gradient(x + width * v), gradient(x - width * v)
            return (v @ (behind - ahead)) / (2.0 * width)

        return jax.lax.map(one, (directions, widths), batch_size=_AT_ONCE)

    widths = _widths(curvature)
    widest = _WIDEST * np.median(widths)
    for _ in range(_REFINEMENTS):
        found = np.asarray(secants(jnp.asarray(widths, x.dtype)), float)
        usable = np.isfinite(found)
        # A direction that still does not fall off is probed further out, up to the cap.
        new = 1.0 / np.sqrt(np.maximum(np.where(usable, found, 0.0), 1e-30))
        new = np.clip(new, widths / 4.0, widths * 4.0)
        before, widths = widths, np.minimum(np.where(usable, new, widths / 4.0), widest)
        if np.allclose(widths, before, rtol=_SETTLED):
            break
    return widths
