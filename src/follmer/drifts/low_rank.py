"""A mixture of low-rank Gaussians along chains, whose Föllmer process has a closed form."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray


class LowRankMixture(eqx.Module):
    """Σ_c π_c N(m_c, w² S_c + f² I), with m_c and S_c the moments of a few points each.

    S_c has one rank less than there are points, so a draw takes O(points · dim) and the density
    O(components · points · dim). The floor f makes it a density on the whole space.
    """

    points: Float[Array, "components points dim"]
    width: Float[Array, ""]  # w
    floor: Float[Array, ""]  # f
    log_shares: Float[Array, " components"]  # ln π

    @property
    def means(self) -> Float[Array, "components dim"]:
        return jnp.mean(self.points, axis=1)

    def draw(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """One draw: a component first, then its Gaussian, by one exact step of its h-transform."""
        choice_key, noise_key = jax.random.split(key)
        _, size, dim = self.points.shape
        chosen = self.points[jax.random.categorical(choice_key, self.log_shares)]
        mean = jnp.mean(chosen, axis=0)
        noise = jax.random.normal(noise_key, (size + dim,), self.points.dtype)
        inner, outer = noise[:size] / math.sqrt(max(size - 1, 1)), noise[size:]
        return mean + self.width * (inner @ (chosen - mean)) + self.floor * outer

    def log_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The mixture's log density."""
        logs, _ = self._components(jnp.ones((), x.dtype), x)
        return logsumexp(logs + self.log_shares)

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The Föllmer drift Σ_c r_c(t, x) u_c(t, x), for t in [0, 1).

        Given its component a path is N(t m, t² Σ + t(1 − t) I) at time t, and drifts to
        E[X_1 | X_t = x] = m + Σ (tΣ + (1 − t) I)⁻¹ (x − t m).
        """
        logs, ends = self._components(t, x)
        shares = jax.nn.softmax(logs + self.log_shares)
        return (shares @ ends - x) / (1.0 - t)

    def _components(
        self, t: Float[Array, ""], x: Float[Array, " dim"]
    ) -> tuple[Float[Array, " components"], Float[Array, "components dim"]]:
        """For each component the log density of x at time t, and the mean of its end."""
        size = self.points.shape[1]

        def one(points: Float[Array, "points dim"]) -> tuple[Array, Array]:
            mean = jnp.mean(points, axis=0)
            # Rows whose outer products add up to w² S.
            rows = self.width * (points - mean) / math.sqrt(max(size - 1, 1))
            noise = t * self.floor**2 + (1.0 - t)  # what tΣ + (1 − t) I has beside its low rank
            # (t AᵀA + noise)⁻¹ = (I − Aᵀ (noise/t + A Aᵀ)⁻¹ A) / noise, in as few rows as points.
            inner = t * (rows @ rows.T) + noise * jnp.eye(size, dtype=x.dtype)
            factor = jnp.linalg.cholesky(inner)
            away = x - t * mean
            along = rows @ away
            solved = jax.scipy.linalg.cho_solve((factor, True), along)
            pulled = (away - t * (solved @ rows)) / noise
            end = mean + (rows @ pulled) @ rows + self.floor**2 * pulled
            dim = len(x)
            log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor))) + (dim - size) * jnp.log(noise)
            # The covariance is t times that.
            spread = jnp.maximum(t, jnp.finfo(x.dtype).tiny)
            log_det += dim * jnp.log(2.0 * math.pi * spread)
            return -0.5 * (away @ pulled / spread + log_det), end

        return jax.lax.map(one, self.points)
