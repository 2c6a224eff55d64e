"""Bayesian posteriors by neural Schrödinger–Föllmer flows."""

import importlib
from typing import Any

from follmer import baselines, datasets, drifts, metrics, objectives, paths
from follmer import judging as diagnostics
from follmer.baselines import PolynomialDecay, mc_sfs, nuts, sgd, sgld
from follmer.errors import FileError, FollmerError, InputError, NonFiniteError, ProcessError
from follmer.fitting.fit import PAPER, fit
from follmer.fitting.prior_process import prior_process
from follmer.fitting.request import Report
from follmer.integrations import from_numpyro, from_pymc
from follmer.judging import ChainDiagnostics, Diagnostics, Verdict
from follmer.nsfs import NSFS, Draws, Info, State
from follmer.posterior.comparison import Comparison, compare
from follmer.posterior.loading import load
from follmer.posterior.posterior import Posterior
from follmer.posterior.prediction import Prediction
from follmer.targets import (
    Affine,
    Predictive,
    StructuredTarget,
    Target,
    from_log_density,
    from_network,
    likelihoods,
    priors,
)
from follmer.tools.cores import use_cores
from follmer.tools.mesh import on_mesh
from follmer.tools.programs import enable_compilation_cache

__version__ = "0.1.0"

__all__ = [
    "NSFS",
    "PAPER",
    "Affine",
    "ChainDiagnostics",
    "Comparison",
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
    "ProcessError",
    "Report",
    "State",
    "StructuredTarget",
    "Target",
    "Verdict",
    "baselines",
    "compare",
    "datasets",
    "diagnostics",
    "drifts",
    "enable_compilation_cache",
    "fit",
    "from_log_density",
    "from_network",
    "from_numpyro",
    "from_pymc",
    "likelihoods",
    "load",
    "mc_sfs",
    "metrics",
    "nuts",
    "objectives",
    "on_mesh",
    "paths",
    "prior_process",
    "priors",
    "sgd",
    "sgld",
    "use_cores",
]

# Imported when they are asked for: they bring packages that are slow to load.
_LATE = ("numpyro",)


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return importlib.import_module(f"follmer.{name}")
    raise AttributeError(f"module 'follmer' has no attribute {name!r}")
