"""HOW the diffusion is steered. A drift is any function or Equinox module `(t, x) -> u`."""

from collections.abc import Callable

from follmer.drifts.decoupled import Decoupled
from follmer.drifts.gaussian import GaussianDrift
from follmer.drifts.heat_semigroup import HeatSemigroup
from follmer.drifts.mlp import MLP, BatchNormMLP
from follmer.drifts.resnet import ResNet
from follmer.drifts.time_mlp import TimeMLP
from follmer.drifts.tracked import AbstractTracked
from follmer.paths import Drift

# Drifts that can be named: each is built by Class(dim, key=key, **drift_options).
DRIFTS: dict[str, Callable[..., Drift]] = {
    "time_mlp": TimeMLP,
    "mlp": MLP,
    "batch_norm_mlp": BatchNormMLP,
    "resnet": ResNet,
}

__all__ = [
    "DRIFTS",
    "MLP",
    "AbstractTracked",
    "BatchNormMLP",
    "Decoupled",
    "GaussianDrift",
    "HeatSemigroup",
    "ResNet",
    "TimeMLP",
]
