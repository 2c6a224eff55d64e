"""The paper's Listing 3: one amortised network for the drift of every local variable."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import Stack


class Decoupled(eqx.Module):
    """[u]_{θ_i} = u_1(t, θ_i, Φ, x_i): the same network for all data points i."""

    stack: Stack

    def __init__(
        self,
        *,
        global_dim: int,
        local_dim: int,
        data_dim: int,
        width: int = 300,
        depth: int = 4,
        batch_norm: bool = True,
        key: PRNGKeyArray,
    ):
        in_size = global_dim + local_dim + data_dim + 1
        self.stack = Stack(
            in_size, local_dim, width=width, depth=depth, batch_norm=batch_norm, key=key
        )

    def __call__(
        self,
        t: Float[Array, ""],
        local: Float[Array, " local"],
        shared: Float[Array, " global"],
        datum: Float[Array, " data"],
    ) -> Float[Array, " local"]:
        return self.stack(t, jnp.concatenate([shared, local, datum, t[None]]))
