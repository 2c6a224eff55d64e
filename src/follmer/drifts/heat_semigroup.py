"""The Föllmer drift by Monte Carlo over the heat semigroup (MC-SFS), in its stable form."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class HeatSemigroup(eqx.Module):
    """u*(t,x) = γ∇ ln E f(x + √(1−t) z), z ~ N(0, γI), estimated with `num_samples` draws of z.

    With w = softmax(ln f(x + √(1−t) z_s)): Stein's form Σ w_s z_s/√(1−t), or the gradient form
    γ Σ w_s ∇ ln f(x + √(1−t) z_s). The softmax needs no split by sign and cannot overflow.
    The draws depend on the key and on t alone.
    """

    log_terminal: Callable[[Float[Array, " dim"]], Float[Array, ""]]
    gamma: float = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    use_gradient: bool = eqx.field(static=True)
    key: PRNGKeyArray

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        bits = jax.lax.bitcast_convert_type(t.astype(jnp.float32), jnp.uint32)
        key = jax.random.fold_in(self.key, bits)
        z = jnp.sqrt(jnp.asarray(self.gamma, x.dtype)) * jax.random.normal(
            key, (self.num_samples, x.size), x.dtype
        )
        spread = jnp.sqrt(1.0 - t)
        points = x + spread * z
        if self.use_gradient:
            log_f, gradients = jax.vmap(jax.value_and_grad(self.log_terminal))(points)
            return self.gamma * jax.nn.softmax(log_f) @ gradients
        log_f = jax.vmap(self.log_terminal)(points)
        # Where no draw sees any mass there is no direction to go.
        log_f = jnp.where(jnp.max(log_f) == -jnp.inf, 0.0, log_f)
        return jax.nn.softmax(log_f) @ z / spread
