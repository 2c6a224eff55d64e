"""Drifts that keep running statistics beside their trained parameters."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.drifts.parts import change_parts
from follmer.paths import Path

# Sets of paths over which statistics are averaged.
_NUM_SETS = 20


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


def with_batch_statistics(
    parameters: PyTree,
    drift_at: Callable[[PyTree], Any],
    simulate: Callable[[Any, PRNGKeyArray], Path],
    times: Float[Array, " steps"],
    key: PRNGKeyArray,
) -> PyTree:
    """The parameters with the statistics that paths of the drift itself have, if it keeps any."""

    def body(i: Int[Array, ""], parameters: PyTree) -> PyTree:
        drift = drift_at(parameters)
        states = simulate(drift, jax.random.fold_in(key, i)).states
        return eqx.filter(track(drift, times, states, 1.0 / (i + 1)), eqx.is_inexact_array)

    return jax.lax.fori_loop(0, _NUM_SETS, body, parameters)


def _is_tracked(node: Any) -> bool:
    return isinstance(node, AbstractTracked) and node.has_statistics
