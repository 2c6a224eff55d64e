"""HOW the diffusion is steered. A drift is any function or Equinox module `(t, x) -> u`."""

from follmer.drifts.additive import Additive
from follmer.drifts.building import DRIFTS, build_drift, checked_drift
from follmer.drifts.decoupled import Decoupled, bind_batch
from follmer.drifts.gaussian import GaussianDrift
from follmer.drifts.heat_semigroup import HeatSemigroup
from follmer.drifts.mixture import GaussianMixture, ProductMixture
from follmer.drifts.mlp import MLP, BatchNormMLP
from follmer.drifts.resnet import ResNet
from follmer.drifts.score_guided import ScoreGuided, guide
from follmer.drifts.time_mlp import TimeMLP
from follmer.drifts.tracked import AbstractTracked, is_tracked, track, with_batch_statistics
from follmer.drifts.zero import Zero

__all__ = [
    "DRIFTS",
    "MLP",
    "AbstractTracked",
    "Additive",
    "BatchNormMLP",
    "Decoupled",
    "GaussianDrift",
    "GaussianMixture",
    "HeatSemigroup",
    "ProductMixture",
    "ResNet",
    "ScoreGuided",
    "TimeMLP",
    "Zero",
    "bind_batch",
    "build_drift",
    "checked_drift",
    "guide",
    "is_tracked",
    "track",
    "with_batch_statistics",
]
