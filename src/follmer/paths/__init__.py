"""The controlled diffusion: time grids, steps, one scan that returns end point and exact weight."""

from follmer.paths.diffusion import PATHS_AXIS, Diffusion, Path, bridge, simulate
from follmer.paths.grids import GRIDS, Grid, as_grid, geometric, grid_times, uniform
from follmer.paths.steps import (
    STEPS,
    Base,
    Control,
    Drift,
    GaussianGuess,
    Move,
    Step,
    as_control,
    euler_maruyama,
    h_transform,
    on_top,
    step_log_ratio,
)

__all__ = [
    "GRIDS",
    "PATHS_AXIS",
    "STEPS",
    "Base",
    "Control",
    "Diffusion",
    "Drift",
    "GaussianGuess",
    "Grid",
    "Move",
    "Path",
    "Step",
    "as_control",
    "as_grid",
    "bridge",
    "euler_maruyama",
    "geometric",
    "grid_times",
    "h_transform",
    "on_top",
    "simulate",
    "step_log_ratio",
    "uniform",
]
