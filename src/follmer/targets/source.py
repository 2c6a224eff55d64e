"""The model that a target was made from: its observations by name, and the way to other data."""

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree


class Labels(NamedTuple):
    """Names of axes, per variable, and of the places along an axis, as ArviZ takes them."""

    dims: Mapping[str, list[str]]
    coords: Mapping[str, Any]


class AbstractSource(eqx.Module):
    """What a target does not need to be sampled, and its user wants to know."""

    @property
    @abc.abstractmethod
    def data(self) -> PyTree:
        """What `with_data` may change, by name."""

    @abc.abstractmethod
    def with_data(self, data: PyTree) -> Any:
        """The target of the same model on other data."""

    @abc.abstractmethod
    def log_likelihoods(self, theta: PyTree) -> dict[str, Array]:
        """The log likelihood of every observation at one draw's parameters; to be traced."""

    @abc.abstractmethod
    def replicates(
        self, thetas: PyTree, outputs: PyTree, key: PRNGKeyArray
    ) -> Mapping[str, Array | np.ndarray]:
        """New observations, one set per draw, given parameters and what they are reported as."""

    @abc.abstractmethod
    def observed(self) -> dict[str, np.ndarray]:
        """The observations."""

    @abc.abstractmethod
    def constants(self) -> dict[str, np.ndarray]:
        """Other data, such as covariates."""

    @abc.abstractmethod
    def labels(self) -> Labels:
        """Names of axes and of places along them."""
