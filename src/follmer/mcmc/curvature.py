"""The shape of a density around a mode: the Gaussian there, and how far out it falls off."""

import numpy as np
from jaxtyping import Float

from follmer.mcmc.climbs import NEARLY, climbed
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
# Distances from the mode at which a density is compared, in its own widths.
_NEAR, _FAR = 1e3, 1e6
# A valley is looked for where the least curvature is this share of the largest, by climbs from so
# many widths away.
_STRAIGHT, _AWAY = 1e-3, 1e5
# A direction runs along the coordinates of at least this share of its largest.
_ALONG = 0.3
# Coordinates up to which all of them are looked at, and operations that this may take.
_MOST_DIMENSIONS, _BUDGET = 200, 1e9


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
    value, gradient = density(x[None])
    step = factor @ (factor.T @ gradient[0])
    tried = x + 0.5 ** np.arange(6)[:, None] * step
    values = density.values(tried)
    values = np.where(np.isfinite(values), values, -np.inf)
    best = int(np.argmax(values))
    return tried[best] if values[best] > value[0] else x


def flat_direction(
    density: Density, mode: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim dim"]
) -> tuple[int, ...]:
    """The coordinates of a direction along which the density does not fall off; none if empty.

    Along a line a density must fall faster than 1/r to have a finite integral. Lines run along
    the coordinates and the axes of `factor`, a root of the covariance at the mode. Where what is
    known is a combination of coordinates alone, others lie in a valley, which climbs follow.
    """
    dim = density.dim
    if dim > _MOST_DIMENSIONS or 8 * dim * density.target.gradient_cost > _BUDGET:
        return ()
    axes = np.concatenate([np.diag(np.linalg.norm(factor, axis=1)), factor.T])
    lines = np.concatenate([axes, -axes])
    near = density.values(mode + _NEAR * lines)
    far = density.values(mode + _FAR * lines)
    top = density.values(mode[None])
    # Where there is no density at all, or the line leaves the numbers, it has fallen. Transforms of
    # bounded parameters end in a plateau where numbers do, far below the mode.
    with np.errstate(invalid="ignore"):
        fallen = (top - near > np.log(_NEAR)) | (near - far > np.log(_FAR / _NEAR))
    flat = np.isfinite(near) & np.isfinite(far) & ~fallen
    if flat.any():
        return _coordinates(lines[int(np.argmax(flat))] / np.linalg.norm(factor, axis=1))
    return _valley(density, mode, float(top[0]))


def _valley(density: Density, mode: Float[np.ndarray, " dim"], top: float) -> tuple[int, ...]:
    """The coordinates of a straight valley through the mode that does not end."""
    widths = coordinate_widths(density, mode)
    values, axes = np.linalg.eigh(secant_precision(density, mode, np.diag(widths)))
    if density.dim == 1 or values[0] > _STRAIGHT * values[-1]:
        return ()
    # Climbs take away what the direction is off by.
    axis = axes[:, 0]
    starts = mode + _AWAY * np.array([[1.0], [-1.0]]) * widths * axis
    ends, heights = climbed(density, starts, widths, NEARLY)
    still_away = np.abs((ends - mode) / widths @ axis) > 0.5 * _AWAY
    is_flat = np.isfinite(heights) & (top - heights < np.log(_AWAY)) & still_away
    return _coordinates(axis) if is_flat.any() else ()


def _coordinates(direction: Float[np.ndarray, " dim"]) -> tuple[int, ...]:
    """Those that a direction runs along."""
    parts = np.abs(direction)
    return tuple(int(one) for one in np.flatnonzero(parts >= _ALONG * parts.max()))
