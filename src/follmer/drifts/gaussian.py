"""The Föllmer drift of a Gaussian target, in closed form."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class GaussianDrift(eqx.Module):
    """u*(t, x) = γ (I + γ(1−t)Λ)⁻¹ (Σ⁻¹m − Λx), Λ = Σ⁻¹ − I/γ, for the target N(m, Σ)."""

    mean: Float[Array, " dim"]
    variances: Float[Array, " dim"]
    axes: Float[Array, "dim dim"]
    gamma: float = eqx.field(static=True)

    def __init__(
        self,
        mean: Float[Array, " dim"],
        covariance: Float[Array, "dim dim"],
        *,
        gamma: float = 1.0,
    ):
        self.mean = jnp.asarray(mean)
        self.variances, self.axes = jnp.linalg.eigh(jnp.asarray(covariance))
        self.gamma = gamma

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        # Along the principal axes the drift is that of independent Gaussians.
        m, z = self.axes.T @ self.mean, self.axes.T @ x
        excess = 1.0 / self.variances - 1.0 / self.gamma
        pull = self.gamma * (m / self.variances - excess * z)
        return self.axes @ (pull / (1.0 + excess * self.gamma * (1.0 - t)))
