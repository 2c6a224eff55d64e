"""The paper's Listing 2: a ResNet score network of θ beside an embedding of t."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.stack import softplus, zero_linear
from follmer.errors import InputError


def sinusoids(t: Float[Array, ""], size: int) -> Float[Array, " size"]:
    """sin and cos of t at `size`/2 frequencies from 1 down to 1e-4."""
    frequencies = np.geomspace(1.0, 1e-4, size // 2)
    angles = t * jnp.asarray(frequencies, t.dtype)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])


class Block(eqx.Module):
    """A first layer, an inner Softplus stack on it, and both results side by side."""

    first: eqx.nn.Linear
    inner: tuple[eqx.nn.Linear, ...]

    def __init__(self, in_size: int, *, width: int, num_inner: int, key: PRNGKeyArray):
        keys = jax.random.split(key, num_inner + 2)
        self.first = eqx.nn.Linear(in_size, width, key=keys[0])
        self.inner = tuple(eqx.nn.Linear(width, width, key=one) for one in keys[1:])

    def __call__(self, h: Float[Array, " in"]) -> Float[Array, " both"]:
        first = h = softplus(self.first(h))
        for layer in self.inner:
            h = softplus(layer(h))
        return jnp.concatenate([first, h])


class ResNet(eqx.Module):
    """Three blocks for θ, one layer for the time embedding, and a last layer that joins them."""

    blocks: tuple[Block, ...]
    time: eqx.nn.Linear
    last: eqx.nn.Linear
    embedding_size: int = eqx.field(static=True)

    def __init__(self, dim: int, *, width: int = 300, embedding_size: int = 128, key: PRNGKeyArray):
        if embedding_size % 2:
            raise InputError(f"embedding_size must be even, not {embedding_size}.")
        *block_keys, time_key, last_key = jax.random.split(key, 5)
        in_sizes = [dim, 2 * width, 2 * width]
        self.blocks = tuple(
            Block(in_size, width=width, num_inner=3, key=one)
            for in_size, one in zip(in_sizes, block_keys, strict=True)
        )
        self.time = eqx.nn.Linear(embedding_size, 2 * embedding_size, key=time_key)
        self.last = zero_linear(2 * width + 2 * embedding_size, dim, last_key)
        self.embedding_size = embedding_size

    def __call__(self, t: Float[Array, ""], x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        h = x
        for block in self.blocks:
            h = block(h)
        time = softplus(self.time(sinusoids(t, self.embedding_size)))
        return self.last(jnp.concatenate([h, time]))
