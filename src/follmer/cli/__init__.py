"""The command line: models of data files, the demo, benchmarks and the paper's experiments."""

from follmer.cli import experiments, tables
from follmer.cli.app import app

__all__ = ["app", "experiments", "tables"]
