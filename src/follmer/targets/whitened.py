"""A target in other coordinates: x = mean + matrix z, so that it is near N(0, I) in z."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.abstract import AbstractTarget, Layout
from follmer.targets.affine import Affine
from follmer.targets.density import preflight


class Whitened(AbstractTarget):
    """The density of z where x = affine(z) has the density of `target`."""

    target: Any  # a `Target`
    affine: Affine
    space: Any
    num_data: int | None = eqx.field(static=True)
    gradient_cost: float = eqx.field(static=True)

    def __init__(self, target: Any, affine: Affine):
        self.target, self.affine = target, affine
        self.space, self.num_data = target.space, target.num_data
        self.gradient_cost = target.gradient_cost + affine.cost

    @property  # type: ignore[misc]
    def data(self) -> PyTree:
        return self.target.data

    @property
    def given(self) -> PyTree:
        return self.target.given

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def dtype(self) -> jnp.dtype:
        return self.target.dtype

    @property
    def layout(self) -> Layout:
        return self.target.layout

    @property
    def prior(self) -> "Whitened":
        """The prior alone, in the same coordinates."""
        return Whitened(self.target.prior, self.affine)

    def log_density(self, x: Float[Array, " dim"], batch: PyTree = None) -> Float[Array, ""]:
        return self.target.log_density(self.affine(x), batch) + self.affine.log_det

    def log_prior_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The prior's part of `log_density`."""
        return self.target.log_prior_density(self.affine(x)) + self.affine.log_det

    def log_likelihood(self, x: Float[Array, " dim"], batch: PyTree = None) -> Float[Array, ""]:
        """The data's part of `log_density`."""
        return self.target.log_likelihood(self.affine(x), batch)

    def constrain(self, x: Float[Array, " dim"], batch: PyTree = None) -> PyTree:
        return self.target.constrain(self.affine(x), batch)

    def parameters(self, x: Float[Array, " dim"]) -> PyTree:
        """The parameter tree at coordinates z."""
        return self.target.parameters(self.affine(x))

    def unconstrain(self, theta: PyTree) -> Float[Array, " dim"]:
        """The coordinates z of a parameter tree."""
        return self.affine.inverse(self.target.unconstrain(theta))

    def whitened(self, affine: Affine | None) -> AbstractTarget:
        if affine is None:
            return self
        raise InputError(
            "the target is whitened already.",
            cause="the target of a sampler was passed on",
            hint="posterior.target, or precondition='identity'",
        )

    def with_data(self, data: PyTree) -> "Whitened":
        return Whitened(self.target.with_data(data), self.affine)

    def check(
        self, *, key: PRNGKeyArray, num_draws: int = 128, scale: float = 1.0, tolerated: float = 0.0
    ) -> Any:
        return preflight(self, key, num_draws, scale, tolerated)
