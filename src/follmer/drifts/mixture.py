"""A Gaussian mixture, whose Föllmer process is known in closed form."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


class GaussianMixture(eqx.Module):
    """Σ_c π_c N(m_c, L_c L_cᵀ).

    Its Föllmer process draws c and runs that component's h-transform, which one step does exactly:
    the end point is a draw of the mixture, and a path's weight for a target p is p(x) over the
    mixture's density at its end.
    """

    log_shares: Float[Array, " components"]
    means: Float[Array, "components dim"]
    factors: Float[Array, "components dim dim"]  # L_c, lower triangular
    inverses: Float[Array, "components dim dim"]  # their inverses

    def __init__(self, shares: Any, means: Any, factors: Any, dtype: Any):
        eye = np.broadcast_to(np.eye(factors.shape[-1]), factors.shape)
        with np.errstate(divide="ignore"):
            self.log_shares = jax.device_put(np.asarray(np.log(shares), dtype))
        self.means = jax.device_put(np.asarray(means, dtype))
        self.factors = jax.device_put(np.asarray(factors, dtype))
        self.inverses = jax.device_put(np.asarray(np.linalg.solve(factors, eye), dtype))

    def log_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The mixture's log density."""
        z = jnp.einsum("cij,cj->ci", self.inverses, x - self.means)
        log_det = jnp.sum(jnp.log(jnp.diagonal(self.inverses, axis1=1, axis2=2)), axis=1)
        constant = 0.5 * len(x) * math.log(2 * math.pi)
        logs = self.log_shares + log_det - 0.5 * jnp.sum(z**2, axis=1) - constant
        return jax.nn.logsumexp(logs)

    def draw(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """One draw of the mixture."""
        choice_key, noise_key = jax.random.split(key)
        chosen = jax.random.categorical(choice_key, self.log_shares)
        noise = jax.random.normal(noise_key, self.means.shape[1:], self.means.dtype)
        return self.means[chosen] + self.factors[chosen] @ noise
