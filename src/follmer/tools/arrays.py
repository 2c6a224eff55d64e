"""Arrays between host and device."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array


def on_device(values: Any, dtype: Any) -> Array:
    """Numbers as a device array; converted on the host, where nothing is compiled for it."""
    return jax.device_put(np.asarray(values, dtype))
