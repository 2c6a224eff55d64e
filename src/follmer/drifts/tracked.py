"""Drifts that keep running statistics beside their trained parameters."""

import abc

import equinox as eqx
from jaxtyping import Array, Float


class AbstractTracked(eqx.Module):
    """A drift whose statistics follow the paths: batch's in training, running when sampling."""

    @abc.abstractmethod
    def track(
        self, times: Float[Array, " steps"], states: Float[Array, "paths steps dim"]
    ) -> "AbstractTracked":
        """The same drift after seeing these states at these times."""
