"""WHAT is sampled: a log density, or prior + likelihood + data, over a pytree of parameters."""

from follmer.targets import likelihoods, priors
from follmer.targets.affine import Affine
from follmer.targets.data import checked_batch_size, random_batch, take
from follmer.targets.network import from_network
from follmer.targets.predictive import Predictive
from follmer.targets.preflight import CheckReport
from follmer.targets.rows import Rows
from follmer.targets.structured import StructuredTarget
from follmer.targets.target import Target, as_target

__all__ = [
    "Affine",
    "CheckReport",
    "Predictive",
    "Rows",
    "StructuredTarget",
    "Target",
    "as_target",
    "checked_batch_size",
    "from_network",
    "likelihoods",
    "priors",
    "random_batch",
    "take",
]
