"""The Gaussian that a density resembles around a point, by secants of its gradient."""

import numpy as np
from jaxtyping import Float

from follmer.mcmc.mixtures import Mixture
from follmer.targets import Density

# The first look at a coordinate's width, relative to its place.
_FIRST = 1e-2
# Rounds in which widths are looked for, coordinate by coordinate; how far they may change in one.
_COORDINATE_ROUNDS, _FARTHEST = 4, 100.0
# Rounds in which the curvature is read along the axes of the last, at ± one width.
_ROUNDS = 3
# Widths within this share of what they were are settled.
_SETTLED = 0.05
# Directions without curvature are this many times as wide as the median one.
_WIDEST = 1e3


def gaussian_at(density: Density, x: Float[np.ndarray, " dim"]) -> Mixture:
    """N(x, H⁻¹), H read from how the gradient changes over ± one standard deviation.

    The Hessian at one point misleads at kinks (a Laplace prior has none away from 0), along flat
    directions and where it is indefinite. A secant over the width of the density does not, and is
    the same where the density is Gaussian.
    """
    x = np.asarray(x, float)
    factor = np.diag(coordinate_widths(density, x))
    for _ in range(_ROUNDS):
        precision = secant_precision(density, x, factor)
        values, axes = np.linalg.eigh(precision)
        factor = factor @ (axes * bounded_widths(values))
        x = _newton(density, x, factor)
        if np.all(np.abs(values - 1.0) < _SETTLED):
            break
    covariance = factor @ factor.T
    covariance += np.diag(1e-9 * np.diag(covariance) + np.finfo(float).tiny)
    return Mixture(np.ones(1), x[None], covariance[None])


def secant_precision(
    density: Density, x: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim axes"]
) -> Float[np.ndarray, "axes axes"]:
    """The curvature of −ln p in z, x + factor z, over ± one; 0 where it is not finite."""
    _, ahead = density(x + factor.T)
    _, behind = density(x - factor.T)
    with np.errstate(invalid="ignore", over="ignore"):
        precision = 0.5 * (behind - ahead) @ factor
        precision = 0.5 * (precision + precision.T)
    return np.where(np.isfinite(precision), precision, 0.0)


def bounded_widths(precision: Float[np.ndarray, " axes"]) -> Float[np.ndarray, " axes"]:
    """1/√precision; where there is none, the typical width, and none far above it."""
    curved = precision > 0
    widths = 1.0 / np.sqrt(np.where(curved, precision, 1.0))
    typical = np.median(widths[curved]) if curved.any() else 1.0
    return np.where(curved, np.minimum(widths, _WIDEST * typical), typical)


def coordinate_widths(density: Density, x: Float[np.ndarray, " dim"]) -> np.ndarray:
    """The scale of each coordinate alone."""
    widths = _FIRST * (1.0 + np.abs(x))
    for _ in range(_COORDINATE_ROUNDS):
        _, ahead = density(x + np.diag(widths))
        _, behind = density(x - np.diag(widths))
        # Where the density does not fall off yet, or not at all any more, look elsewhere.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = np.diag(behind - ahead) / (2.0 * widths)
            wanted = np.where(found > 0, found**-0.5, _FARTHEST * widths)
        wanted = np.where(np.isfinite(found), wanted, widths / _FARTHEST)
        before = widths
        widths = np.clip(wanted, before / _FARTHEST, before * _FARTHEST)
        if np.all(np.abs(widths / before - 1.0) < _SETTLED):
            break
    return widths


def _newton(
    density: Density, x: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, " dim"]:
    """A better point along the Newton step: a badly conditioned climb may stop short."""
    value, gradient = (one[0] for one in density(x[None]))
    step = factor @ (factor.T @ gradient)
    tried = x + 0.5 ** np.arange(6)[:, None] * step
    values = density.values(tried)
    values = np.where(np.isfinite(values), values, -np.inf)
    best = int(np.argmax(values))
    return tried[best] if values[best] > value else x
