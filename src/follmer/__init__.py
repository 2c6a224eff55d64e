"""Bayesian posteriors by neural Schrödinger–Föllmer flows."""

from follmer import baselines, datasets, diagnostics, drifts, metrics, objectives, paths
from follmer.baselines import PolynomialDecay, mc_sfs, nuts, sgd, sgld
from follmer.diagnostics import ChainDiagnostics, Diagnostics
from follmer.errors import FileError, FollmerError, InputError, NonFiniteError
from follmer.fit import PAPER, fit
from follmer.integrations import from_numpyro
from follmer.loading import load
from follmer.nsfs import NSFS, Draws, Info, State
from follmer.posterior import Posterior
from follmer.prediction import Prediction
from follmer.prior_process import prior_process
from follmer.targets import (
    Affine,
    Predictive,
    StructuredTarget,
    Target,
    from_network,
    likelihoods,
    priors,
)
from follmer.training import Report

__version__ = "0.1.0"

__all__ = [
    "NSFS",
    "PAPER",
    "Affine",
    "ChainDiagnostics",
    "Diagnostics",
    "Draws",
    "FileError",
    "FollmerError",
    "Info",
    "InputError",
    "NonFiniteError",
    "PolynomialDecay",
    "Posterior",
    "Prediction",
    "Predictive",
    "Report",
    "State",
    "StructuredTarget",
    "Target",
    "baselines",
    "datasets",
    "diagnostics",
    "drifts",
    "fit",
    "from_network",
    "from_numpyro",
    "likelihoods",
    "load",
    "mc_sfs",
    "metrics",
    "nuts",
    "objectives",
    "paths",
    "prior_process",
    "priors",
    "sgd",
    "sgld",
]
