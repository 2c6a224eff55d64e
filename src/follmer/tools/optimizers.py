"""Adam along a cosine, or the user's own optimiser."""

from typing import Any

import jax.numpy as jnp
import optax

from follmer.errors import InputError
from follmer.tools.checks import positive_float


def as_optimizer(
    optimizer: Any, learning_rate: Any, num_iterations: int
) -> optax.GradientTransformation:
    """The optimiser as given, or Adam.

    A number as the rate is its peak, decayed along a cosine; a schedule is used as it is.
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    if optimizer is not None:
        raise InputError(
            f"optimizer is {type(optimizer).__name__}, not an Optax optimiser.",
            hint="optimizer=optax.adam(1e-3), called with its rate",
        )
    rate = as_rate(learning_rate)
    return optax.adam(rate if callable(rate) else optax.cosine_decay_schedule(rate, num_iterations))


def as_rate(learning_rate: Any) -> float | optax.Schedule:
    """A positive number, or the schedule as it is."""
    if callable(learning_rate):
        return learning_rate
    return positive_float("learning_rate", learning_rate)


def guarded(
    optimizer: optax.GradientTransformation, clip_norm: float
) -> optax.GradientTransformation:
    """The optimiser on clipped gradients; those that are not finite are skipped and counted."""
    clipped = optax.chain(optax.clip_by_global_norm(clip_norm), optimizer)
    # Never give in to non-finite gradients: `fit` reads the counters and raises.
    return optax.apply_if_finite(clipped, max_consecutive_errors=jnp.iinfo(jnp.int32).max)
