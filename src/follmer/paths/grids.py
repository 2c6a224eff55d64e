"""Time grids 0 = t_0 < … < t_k = 1. A grid is a function of the number of steps."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from follmer.errors import InputError
from follmer.tools.checks import named_or_own, positive_int

Grid = Callable[[int], np.ndarray]


def uniform(num_steps: int) -> np.ndarray:
    """Equal steps: the paper's grid."""
    return np.linspace(0.0, 1.0, num_steps + 1)


def geometric(num_steps: int, last_step: float = 1e-3) -> np.ndarray:
    """Geometric in 1 − t, from 1 down to `last_step`, then 0.

    The last step alone adds variance γ Δt, so it must be small against the narrowest width of the
    target; this grid makes it so with few steps.
    """
    remaining = np.geomspace(1.0, last_step, num_steps) if num_steps > 1 else np.ones(1)
    return np.append(1.0 - remaining, 1.0)


GRIDS: dict[str, Grid] = {"uniform": uniform, "geometric": geometric}


def as_grid(grid: Any) -> Grid:
    """The grid of that name, or the user's own function of the number of steps."""
    return named_or_own("grid", grid, GRIDS, "a function of num_steps that returns the times")


def grid_times(grid: Grid, num_steps: int) -> np.ndarray:
    """The checked times of a grid with that many steps."""
    try:
        # A grid written in JAX must give numbers even while something else is traced.
        with jax.ensure_compile_time_eval():
            times = np.asarray(grid(positive_int("num_steps", num_steps)), float)
    except (ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the grid does not return an array of times: {error}") from error
    if times.shape != (num_steps + 1,):
        raise InputError(
            f"the grid returned shape {times.shape} for {num_steps} steps, not ({num_steps + 1},).",
            hint="both end points belong to the grid",
        )
    if times[0] != 0 or times[-1] != 1 or not np.all(np.diff(times) > 0):
        raise InputError(
            f"the grid {np.array2string(times, threshold=8, precision=4)} does not rise strictly "
            "from 0 to 1.",
            hint="numpy.linspace(0, 1, num_steps + 1)",
        )
    return times
