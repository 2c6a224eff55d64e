"""Telling whether a density is Gaussian, and which."""

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.mcmc.curvature import secant_precision
from follmer.plans.mean_field import probed_widths
from follmer.plans.policy import POLICY
from follmer.targets import AbstractTarget, Affine, Density
from follmer.targets.affine import diagonal, from_covariance
from follmer.tools.keys import normals

# Nats, and share of the log density's size, by which rounding may part it from the Gaussian's.
_ROUNDING, _RELATIVE_ROUNDING = 1e-2, 1e-5
# Draws at which they are compared, and how wide: a heavy tail shows further out.
_NUM_DRAWS, _WIDE = 64, 2.0


def as_gaussian(target: AbstractTarget, key: PRNGKeyArray) -> Affine | None:
    """The map that sends N(0, I) to the target; None where the target is not Gaussian."""
    density = Density(target)
    zero = np.zeros(target.dim)
    gradient = density(zero[None])[1][0]
    widths = probed_widths(target, zero, key)
    independent = diagonal(widths**2 * gradient, widths, target.dtype)
    if _is_gaussian(density, independent, key):
        return independent
    if target.dim > POLICY.max_dense:
        return None
    precision = secant_precision(density, zero, np.diag(widths))
    values, axes = np.linalg.eigh(precision)
    if values[0] <= 0:
        return None
    factor = widths[:, None] * (axes / np.sqrt(values))
    covariance = factor @ factor.T
    dense = from_covariance(covariance @ gradient, covariance, target.dtype)
    return dense if _is_gaussian(density, dense, key) else None


def _is_gaussian(density: Density, affine: Affine, key: PRNGKeyArray) -> bool:
    """Whether ln p(x) + |z|²/2 is the same everywhere, x = affine(z)."""
    z = _WIDE * normals(key, "comparison", (_NUM_DRAWS, density.target.dim))
    values = density.values(affine.rows(z))
    difference = values + 0.5 * np.sum(z**2, axis=1)
    if not np.isfinite(difference).all():
        return False
    return bool(np.ptp(difference) <= _ROUNDING + _RELATIVE_ROUNDING * np.ptp(values))
