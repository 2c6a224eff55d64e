"""How sure predictions may be: a pool of draws, sharpened or widened by rows that are left out.

An average of distributions that are each calibrated is wider than they are. Its distribution
function F is therefore passed through that of a symmetric beta distribution, B(α, α): a
beta-transformed linear pool (Ranjan & Gneiting 2010, doi:10.1111/j.1467-9868.2009.00726.x). α is
the one under which training rows, each left out, are the most likely; above 1 it sharpens. It is
1, and nothing changes, where chance alone would explain as much.

Class probabilities have no distribution function: they are raised to a power and normalised, which
sharpens above 1 in the same way (Guo et al. 2017, arXiv:1706.04599, whose temperature is 1/power).
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

# Standard errors from 1 below which α is 1: what chance does to few rows is left alone.
_ERRORS = 2.0
# What one row tells of α at 1: the variance of ln F + ln(1 − F), 4 − π²/3.
_INFORMATION = 4.0 - np.pi**2 / 3.0
# The least and the largest α: a factor of about 2 in the width of intervals.
_LEAST, _LARGEST = 0.4, 3.0
# Values of F nearer to 0 and 1 than this are not told apart in single precision.
_RESOLVED = 1e-6
# The least and the largest power of class probabilities.
_LEAST_POWER, _LARGEST_POWER = 0.2, 5.0


def sharpness_of(levels: Float[np.ndarray, " rows"], resolved: float) -> float:
    """α from the values of F at rows that are left out, told apart from 0 and 1 by `resolved`."""
    from scipy.optimize import brentq
    from scipy.special import digamma

    inside = np.clip(levels, resolved, 1.0 - resolved)
    mean = float(np.mean(np.log(inside) + np.log1p(-inside)))
    # Of a calibrated pool F is uniform, and the mean −2.
    if abs(mean + 2.0) <= _ERRORS * np.sqrt(_INFORMATION / len(inside)):
        return 1.0

    def slope(alpha: float) -> float:
        return mean - 2.0 * (digamma(alpha) - digamma(2.0 * alpha))

    if slope(_LEAST) <= 0.0:
        return _LEAST
    return _LARGEST if slope(_LARGEST) >= 0.0 else float(brentq(slope, _LEAST, _LARGEST))


def pool_levels(
    levels: Float[np.ndarray, " levels"], sharpness: float
) -> Float[np.ndarray, " levels"]:
    """Levels of the pool at which its sharpened distribution has the given ones."""
    from scipy.special import betaincinv

    return betaincinv(sharpness, sharpness, np.asarray(levels, float))


def log_sharpening(levels: Float[Array, "..."], sharpness: Float[Array, ""]) -> Float[Array, "..."]:
    """ln of the sharpened density over the pool's, where F has the given values."""
    inside = jnp.clip(levels, _RESOLVED, 1.0 - _RESOLVED)
    logs = jnp.log(inside) + jnp.log1p(-inside)
    return (sharpness - 1.0) * logs - betaln(sharpness, sharpness)


def power_of(
    probabilities: Float[np.ndarray, "rows classes"], labels: Int[np.ndarray, " rows"]
) -> float:
    """The power of class probabilities under which the labels are the most likely."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    logs = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    own = logs[np.arange(len(labels)), labels]

    def loss(power: float) -> float:
        return float(np.mean(logsumexp(power * logs, axis=1) - power * own))

    bounds = (_LEAST_POWER, _LARGEST_POWER)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def powered(
    probabilities: Float[Array | np.ndarray, "... classes"], power: ArrayLike
) -> Float[Array, "... classes"]:
    """Class probabilities to a power, of sum 1 again."""
    raised = jnp.asarray(probabilities) ** power
    return raised / raised.sum(axis=-1, keepdims=True)
