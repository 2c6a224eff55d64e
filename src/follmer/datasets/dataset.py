"""What a data set holds."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from follmer.errors import InputError


class Split(NamedTuple):
    """The rows that train and the rows that test."""

    train: Int[np.ndarray, " train"]
    test: Int[np.ndarray, " test"]


class Dataset(NamedTuple):
    """Inputs and targets, one row per observation; None where the set has no such part.

    `splits` are the standard divisions into training and test rows that the literature compares on,
    for sets that come undivided: see `split`.
    """

    x: np.ndarray
    y: np.ndarray | None = None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    splits: tuple[Split, ...] = ()

    def split(self, index: int) -> "Dataset":
        """The set divided by its standard split of that number."""
        if not self.splits:
            raise InputError("this data set has no standard splits.")
        if index not in range(len(self.splits)):
            raise InputError(
                f"there is no split {index!r}.", hint=f"one of 0 to {len(self.splits) - 1}"
            )
        train, test = self.splits[index]
        if self.y is None:
            return Dataset(self.x[train], x_test=self.x[test])
        return Dataset(self.x[train], self.y[train], self.x[test], self.y[test])
