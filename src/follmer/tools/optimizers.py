"""Adam along a cosine, or the user's own optimiser."""

from typing import Any

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
    if not callable(learning_rate):
        peak = positive_float("learning_rate", learning_rate)
        learning_rate = optax.cosine_decay_schedule(peak, num_iterations)
    return optax.adam(learning_rate)
