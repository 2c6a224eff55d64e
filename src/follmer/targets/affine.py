"""Affine changes of variables x = mean + scale ∘ (I + B (diag(stretch) − I) Bᵀ) z, of a target."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.abstract import AbstractTarget, Layout
from follmer.targets.density import preflight


class Affine(eqx.Module):
    """A mean and a square root of a covariance: a diagonal, times stretches along a few axes.

    `basis` has orthonormal columns: none makes the map diagonal, a few make it low-rank plus
    diagonal, and `dim` of them reach every covariance.
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    basis: Float[Array, "dim rank"]
    stretch: Float[Array, " rank"]

    def __call__(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """x of z."""
        return self.mean + self.scale * self._stretched(z, self.stretch)

    def inverse(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """z of x."""
        return self._stretched((x - self.mean) / self.scale, 1.0 / self.stretch)

    def rows(self, z: np.ndarray) -> Float[np.ndarray, "rows dim"]:
        """x of every row of z, on the host in double precision."""
        return self._on_host(z, inverse=False)

    def inverse_rows(self, x: np.ndarray) -> Float[np.ndarray, "rows dim"]:
        """z of every row of x, on the host in double precision."""
        return self._on_host(x, inverse=True)

    def _on_host(self, rows: np.ndarray, *, inverse: bool) -> np.ndarray:
        mean, scale, basis, stretch = (
            np.asarray(part, float) for part in (self.mean, self.scale, self.basis, self.stretch)
        )
        z = np.asarray(rows, float)
        if inverse:
            z, stretch = (z - mean) / scale, 1.0 / stretch
        z = z + ((z @ basis) * (stretch - 1.0)) @ basis.T
        return z if inverse else mean + scale * z

    @property
    def matrix(self) -> Float[Array, "dim dim"]:
        """That of the map: x = mean + matrix z."""
        stretched = (self.basis * (self.stretch - 1.0)) @ self.basis.T
        return self.scale[:, None] * (jnp.eye(len(self.mean), dtype=self.scale.dtype) + stretched)

    @property
    def log_det(self) -> Float[Array, ""]:
        return jnp.sum(jnp.log(self.scale)) + jnp.sum(jnp.log(self.stretch))

    @property
    def cost(self) -> float:
        """Operations that the map adds to a gradient: two products with its basis, both ways."""
        return 8.0 * self.basis.size

    def _stretched(self, z: Float[Array, " dim"], stretch: Array) -> Float[Array, " dim"]:
        if self.basis.shape[1] == 0:
            return z
        return z + self.basis @ ((stretch - 1.0) * (self.basis.T @ z))


def diagonal(mean: Any, scale: Any, dtype: Any) -> Affine:
    """x = mean + scale ∘ z."""
    mean, scale = np.asarray(mean), np.asarray(scale)
    return Affine(
        jax.device_put(np.array(mean, dtype)),
        jax.device_put(np.array(scale, dtype)),
        jnp.zeros((len(mean), 0), dtype),
        jnp.zeros(0, dtype),
    )


def from_covariance(mean: Any, covariance: Any, dtype: Any) -> Affine:
    """The map that sends N(0, I) to N(mean, covariance)."""
    covariance = np.asarray(covariance, float)
    scale = np.sqrt(np.diag(covariance))
    values, basis = np.linalg.eigh(covariance / np.outer(scale, scale))
    # Rounding may leave eigenvalues of a singular correlation at or below zero.
    stretch = np.sqrt(np.maximum(values, values[-1] * len(values) * np.finfo(float).eps))
    return Affine(
        *(jax.device_put(np.asarray(part, dtype)) for part in (mean, scale, basis, stretch))
    )


def from_factor(mean: Any, factor: Any, dtype: Any) -> Affine:
    """The map that sends N(0, I) to N(mean, factor factorᵀ)."""
    factor = np.asarray(factor, float)
    return from_covariance(mean, factor @ factor.T, dtype)


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
