"""WHAT is sampled: a log density, or prior + likelihood + data, over a pytree of parameters."""

from follmer.targets import likelihoods, priors
from follmer.targets.abstract import AbstractTarget, Layout
from follmer.targets.affine import Affine, Whitened
from follmer.targets.data import checked_batch_size, data_digest, random_batch, take
from follmer.targets.density import CheckReport, Density, values_and_gradients
from follmer.targets.log_density import from_log_density
from follmer.targets.network import from_network
from follmer.targets.predictive import Predictive
from follmer.targets.rows import Rows
from follmer.targets.structured import StructuredTarget
from follmer.targets.target import Target, as_any_target, as_target

__all__ = [
    "AbstractTarget",
    "Affine",
    "CheckReport",
    "Density",
    "Layout",
    "Predictive",
    "Rows",
    "StructuredTarget",
    "Target",
    "Whitened",
    "as_any_target",
    "as_target",
    "checked_batch_size",
    "data_digest",
    "from_log_density",
    "from_network",
    "likelihoods",
    "priors",
    "random_batch",
    "take",
    "values_and_gradients",
]
