"""Gaussian approximations at a point, by curvature."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer.host import normals
from follmer.targets.affine import Affine, from_covariance
from follmer.warmup.hmc import LogDensity

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
    return centred(log_density, affine)


def centred(log_density: LogDensity, affine: Affine) -> Affine:
    """The Gaussian moved to where its mean log density is largest: from the mode to the mean.

    In many dimensions a mode is far from the mass of a skewed density.
    """
    dtype = affine.mean.dtype
    z = normals(jax.random.key(0), (_CENTRING_DRAWS // 2, len(affine.mean)), dtype)
    z = np.concatenate([z, -z])

    def value(shift: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.mean(jax.vmap(lambda z: log_density(affine(shift + z)))(z))

    @jax.jit
    def step(shift: Array, length: Array) -> tuple[Array, Array]:
        before, gradient = jax.value_and_grad(value)(shift)
        after = shift + length * gradient
        return after, value(after) - before

    shift, length = jnp.zeros_like(affine.mean), 1.0
    for _ in range(_CENTRING_STEPS):
        after, gain = step(shift, jnp.asarray(length, shift.dtype))
        if gain > 0:
            shift = after
        else:
            length *= 0.25
        if abs(float(gain)) < _NEWTON_GAIN or not np.isfinite(gain):
            break
    return eqx.tree_at(lambda one: one.mean, affine, affine(shift))


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
    gradient = jax.grad(log_density)

    @jax.jit
    def columns(x: Array) -> Array:
        return jax.lax.map(
            lambda v: jax.jvp(gradient, (x,), (v,))[1],
            jnp.eye(len(x), dtype=x.dtype),
            batch_size=_AT_ONCE,
        )

    found = -np.asarray(columns(x), float)
    return np.where(np.isfinite(found), 0.5 * (found + found.T), 0.0)


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

    curved = curvature > 0
    widths = 1.0 / np.sqrt(np.where(curved, curvature, 1.0))
    typical = np.median(widths[curved]) if curved.any() else 1.0
    widths = np.where(curved, np.minimum(widths, _WIDEST * typical), typical)
    for _ in range(_REFINEMENTS):
        found = np.asarray(secants(jnp.asarray(widths, x.dtype)), float)
        usable = np.isfinite(found)
        # A direction that still does not fall off is probed further out, up to the cap.
        new = 1.0 / np.sqrt(np.maximum(np.where(usable, found, 0.0), 1e-30))
        new = np.clip(new, widths / 4.0, widths * 4.0)
        before, widths = widths, np.minimum(np.where(usable, new, widths / 4.0), _WIDEST * typical)
        if np.allclose(widths, before, rtol=_SETTLED):
            break
    return widths
