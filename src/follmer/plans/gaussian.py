"""Telling whether a density is Gaussian, and which."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.plans.descent import probed_widths
from follmer.plans.laplace import hessian
from follmer.plans.start import MAX_DENSE
from follmer.targets import Target
from follmer.targets.affine import Affine, diagonal, from_covariance

# Nats, and share of the log density's size, by which rounding may part it from the Gaussian's.
_ROUNDING, _RELATIVE_ROUNDING = 1e-2, 1e-5
# Draws at which they are compared, and how wide: a heavy tail shows further out.
_NUM_DRAWS, _WIDE = 64, 2.0


def as_gaussian(target: Target, key: PRNGKeyArray) -> Affine | None:
    """The map that sends N(0, I) to the target; None where the target is not Gaussian."""
    width_key, draw_key = jax.random.split(key)
    zero = jnp.zeros(target.dim, target.dtype)
    gradient = np.asarray(jax.grad(target.log_density)(zero), float)
    widths = probed_widths(target.log_density, zero, width_key)
    independent = diagonal(widths**2 * gradient, widths, target.dtype)
    if _is_gaussian(target.whitened(independent), draw_key):
        return independent
    if target.dim > MAX_DENSE:
        return None
    precision = hessian(target.log_density, zero)
    if np.linalg.eigvalsh(precision)[0] <= 0:
        return None
    covariance = np.linalg.inv(precision)
    dense = from_covariance(covariance @ gradient, covariance, target.dtype)
    return dense if _is_gaussian(target.whitened(dense), draw_key) else None


def _is_gaussian(whitened: Target, key: PRNGKeyArray) -> bool:
    """Whether ln p(z) + |z|²/2 is the same everywhere."""

    @jax.jit
    def compared(z: Float[Array, "draws dim"]) -> tuple[Array, Array]:
        values = jax.vmap(whitened.log_density)(z)
        return values, values + 0.5 * jnp.sum(z**2, axis=1)

    z = _WIDE * jax.random.normal(key, (_NUM_DRAWS, whitened.dim), whitened.dtype)
    values, difference = (np.asarray(one, float) for one in compared(z))
    return bool(np.ptp(difference) <= _ROUNDING + _RELATIVE_ROUNDING * np.ptp(values))
