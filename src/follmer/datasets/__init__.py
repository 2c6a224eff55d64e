"""Public data sets, each file checked against its sha256."""

from follmer.datasets.dataset import Dataset, Split
from follmer.datasets.sets import load, names

__all__ = ["Dataset", "Split", "load", "names"]
