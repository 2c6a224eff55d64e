"""Bayesian posteriors by neural Schrödinger–Föllmer flows."""

from follmer import baselines, datasets, drifts, metrics, objectives, paths
from follmer import judging as diagnostics
from follmer.baselines import PolynomialDecay, mc_sfs, nuts, sgd, sgld
from follmer.errors import FileError, FollmerError, InputError, NonFiniteError
from follmer.fitting.fit import PAPER, fit
from follmer.fitting.prior_process import prior_process
from follmer.fitting.request import Report
from follmer.integrations import from_numpyro
from follmer.judging import ChainDiagnostics, Diagnostics, Verdict
from follmer.nsfs import NSFS, Draws, Info, State
from follmer.posterior.loading import load
from follmer.posterior.posterior import Posterior
from follmer.posterior.prediction import Prediction
from follmer.targets import (
    Affine,
    Predictive,
    StructuredTarget,
    Target,
    from_network,
    likelihoods,
    priors,
)

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
    "Verdict",
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
