"""Noise whose width is each row's own: a network's outputs are locations, then as many widths."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from follmer.errors import InputError
from follmer.targets.likelihood import like_outputs
from follmer.tools.checks import positive_floats

PER_ROW = "per_row"
# The least width of a row where y is continuous, over the sd of y: without one, the density of a
# row that a network passes through has no bound.
_FLOOR = 1e-3


def check_width(name: str, width: object) -> None:
    """Raise InputError unless a width is a number above 0, one per output, "per_row" or None."""
    if isinstance(width, str):
        if width != PER_ROW:
            raise InputError(f"{name} must be a number above 0, 'per_row' or None, not {width!r}.")
    # An inferred width is traced, and positive by its constraint.
    elif not isinstance(width, jax.core.Tracer):
        positive_floats(name, width)


def check_floor(name: str, floor: object) -> None:
    """Raise InputError unless a floor is above 0, or left out."""
    if floor is not None and not isinstance(floor, jax.core.Tracer):
        positive_floats(name, floor)


def located(outputs: Array, floor: float | Array | None) -> tuple[Array, Array]:
    """The locations and the widths that outputs hold: floor + softplus."""
    half = outputs.shape[-1] // 2
    location, width = outputs[..., :half], outputs[..., half:]
    if half == 1:
        location, width = location[..., 0], width[..., 0]
    least = jnp.asarray(_FLOOR if floor is None else floor, outputs.dtype)
    return location, least + jax.nn.softplus(width)


def observed(y: np.ndarray, outputs_shape: tuple[int, ...], name: str) -> np.ndarray:
    """y in the shape of the locations."""
    if len(outputs_shape) < 2 or outputs_shape[-1] % 2:
        raise InputError(
            f"the network's outputs have shape {outputs_shape}; with {name}='per_row' their last "
            "axis holds means and then as many widths.",
            hint="a network of two outputs for each column of y",
        )
    half = outputs_shape[-1] // 2
    return like_outputs(y, outputs_shape[:-1] + ((half,) if half > 1 else ()))


def floor_of(y: np.ndarray) -> Array:
    """The sd of rounding where values of y repeat; a small share of the sd of y elsewhere.

    An array, so that other data of the same shape compile nothing.
    """
    values = np.unique(np.asarray(y, float))
    floor = _FLOOR * (float(np.std(y)) or 1.0)
    # Twice each on average: y is recorded on a grid. Its step is the usual gap.
    if 1 < len(values) <= y.size / 2:
        floor = max(float(np.median(np.diff(values))) / np.sqrt(12.0), floor)
    return jnp.asarray(floor, jnp.result_type(float))
