"""Whether a density falls off fast enough to have a finite integral."""

import numpy as np
from jaxtyping import Float

from follmer.mcmc.climbs import NEARLY, climbed
from follmer.mcmc.curvature import coordinate_widths, secant_precision
from follmer.targets import Density

# Distances from the mode at which a density is compared, in its own widths.
_NEAR, _FAR = 1e3, 1e6
# A valley is looked for where the least curvature is this share of the largest, by climbs from so
# many widths away.
_STRAIGHT, _AWAY = 1e-3, 1e5
# A direction runs along the coordinates of at least this share of its largest.
_ALONG = 0.3
# Coordinates up to which all of them are looked at, and operations that this may take.
_MOST_DIMENSIONS, _BUDGET = 200, 1e9


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
    near, far = (density.values(mode + distance * lines) for distance in (_NEAR, _FAR))
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
