"""Whether a density falls off fast enough to have a finite integral."""

import numpy as np
from jaxtyping import Float

from follmer.targets import Density

# Distances from the mode at which a density is compared, in its own widths.
_NEAR, _FAR = 1e3, 1e6
# Coordinates up to which all of them are looked at, and operations that this may take.
_MOST_DIMENSIONS, _BUDGET = 200, 1e9


def flat_coordinate(
    density: Density, mode: Float[np.ndarray, " dim"], factor: Float[np.ndarray, "dim dim"]
) -> int | None:
    """The coordinate along which the density does not fall off, or None.

    Along a line a density must fall faster than 1/r to have a finite integral. Lines run along
    the coordinates and the axes of `factor`, a root of the covariance at the mode; of an axis, the
    coordinate is told that it runs along most.
    """
    dim = density.dim
    if dim > _MOST_DIMENSIONS or 8 * dim * density.target.gradient_cost > _BUDGET:
        return None
    axes = np.concatenate([np.diag(np.linalg.norm(factor, axis=1)), factor.T])
    lines = np.concatenate([axes, -axes])
    near, far = (density.values(mode + distance * lines) for distance in (_NEAR, _FAR))
    top = density.values(mode[None])
    # Where there is no density at all, or the line leaves the numbers, it has fallen. Transforms of
    # bounded parameters end in a plateau where numbers do, far below the mode.
    with np.errstate(invalid="ignore"):
        fallen = (top - near > np.log(_NEAR)) | (near - far > np.log(_FAR / _NEAR))
    flat = np.isfinite(near) & np.isfinite(far) & ~fallen
    if not flat.any():
        return None
    line = lines[int(np.argmax(flat))]
    return int(np.argmax(np.abs(line) / np.linalg.norm(factor, axis=1)))
