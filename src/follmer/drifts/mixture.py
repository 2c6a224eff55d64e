"""Gaussian mixtures, whose Föllmer processes are known in closed form."""

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
        noise = jax.random.normal(noise_key, self.means.shape[1:], self.means.dtype)
        # Of many draws at once this is one product; choosing first would copy a factor for each.
        moved = self.means + jnp.einsum("cij,j->ci", self.factors, noise)
        return moved[jax.random.categorical(choice_key, self.log_shares)]


class ProductMixture(eqx.Module):
    """Π_i Σ_c π_ic N(z_i; m_ic, s_ic²) in z, where x = origin + axes z.

    The Föllmer process of independent coordinates is that of every coordinate by itself.
    """

    origin: Float[Array, " dim"]
    axes: Float[Array, "dim dim"]
    inverse: Float[Array, "dim dim"]  # of the axes
    log_shares: Float[Array, "dim components"]
    means: Float[Array, "dim components"]
    sds: Float[Array, "dim components"]

    def __init__(self, origin: Any, axes: Any, shares: Any, means: Any, sds: Any, dtype: Any):
        with np.errstate(divide="ignore"):
            parts = (origin, axes, np.linalg.inv(axes), np.log(shares), means, sds)
        placed = [jax.device_put(np.asarray(part, dtype)) for part in parts]
        self.origin, self.axes, self.inverse, self.log_shares, self.means, self.sds = placed

    def log_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The product's log density."""
        z = self.inverse @ (x - self.origin)
        logs = self.log_shares + jax.scipy.stats.norm.logpdf(z[:, None], self.means, self.sds)
        return jnp.sum(jax.nn.logsumexp(logs, axis=1)) + jnp.linalg.slogdet(self.inverse)[1]

    def draw(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """One draw of the product."""
        choice_key, noise_key = jax.random.split(key)
        chosen = jax.random.categorical(choice_key, self.log_shares)[:, None]
        mean, sd = (jnp.take_along_axis(one, chosen, 1)[:, 0] for one in (self.means, self.sds))
        noise = jax.random.normal(noise_key, mean.shape, mean.dtype)
        return self.origin + self.axes @ (mean + sd * noise)
