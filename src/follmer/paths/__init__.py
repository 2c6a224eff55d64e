"""The controlled diffusion: time grids, steps, one scan that returns end point and exact weight."""

from follmer.paths.diffusion import PATHS_AXIS, Diffusion, Path, bridge, simulate
from follmer.paths.grids import GRIDS, Grid, as_grid, geometric, grid_times, uniform
from follmer.paths.many import Differentiate, simulate_many
from follmer.paths.reference import (
    SHARED,
    AbstractReference,
    Brownian,
    LogFactor,
    PriorProcess,
    check_has_data,
)
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
    "SHARED",
    "STEPS",
    "AbstractReference",
    "Base",
    "Brownian",
    "Control",
    "Differentiate",
    "Diffusion",
    "Drift",
    "GaussianGuess",
    "Grid",
    "LogFactor",
    "Move",
    "Path",
    "PriorProcess",
    "Step",
    "as_control",
    "as_grid",
    "bridge",
    "check_has_data",
    "euler_maruyama",
    "geometric",
    "grid_times",
    "h_transform",
    "on_top",
    "simulate",
    "simulate_many",
    "step_log_ratio",
    "uniform",
]
