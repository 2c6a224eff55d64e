"""Drifts that keep running statistics beside their trained parameters."""

import abc
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from follmer.drifts.parts import change_parts


class AbstractTracked(eqx.Module):
    """A drift whose statistics follow the paths: batch's in training, running when sampling."""

    @property
    def has_statistics(self) -> bool:
        """Whether there is anything to keep."""
        return True

    @abc.abstractmethod
    def track(
        self,
        times: Float[Array, " steps"],
        states: Float[Array, "paths steps dim"],
        weight: Float[Array | float, ""],
    ) -> "AbstractTracked":
        """The same drift, its statistics moved by a share of the way to those of these states."""


def is_tracked(drift: Any) -> bool:
    """Whether a drift is, or holds, one with statistics over paths."""
    return any(map(_is_tracked, jax.tree.leaves(drift, is_leaf=_is_tracked)))


def track(
    drift: Any,
    times: Float[Array, " steps"],
    states: Float[Array, "paths steps dim"],
    weight: Float[Array | float, ""],
) -> Any:
    """The drift with all its running statistics moved towards those of the given states."""
    return change_parts(drift, _is_tracked, lambda part: part.track(times, states, weight))


def _is_tracked(node: Any) -> bool:
    return isinstance(node, AbstractTracked) and node.has_statistics
