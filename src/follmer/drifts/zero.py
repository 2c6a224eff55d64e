"""No drift at all."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Zero(eqx.Module):
    """u = 0: the reference itself, or the Gaussian guess of the h-transform steps alone."""

    def __init__(self, dim: int, *, key: PRNGKeyArray):
        del dim, key

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.zeros_like(x)
