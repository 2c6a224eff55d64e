"""The networks of the paper's experiments, as functions of plain trees of weights."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Layers = list[tuple[Float[Array, "ins outs"], Float[Array, " outs"]]]


def relu_network(layers: Layers, x: Float[Array, "rows ins"]) -> Float[Array, "rows outs"]:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def layers(sizes: Sequence[int], key: PRNGKeyArray) -> Layers:
    """Weights of variance 2/inputs and zero biases: where a point estimate starts."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (ins, outs)) * (2.0 / ins) ** 0.5, jnp.zeros(outs))
        for k, ins, outs in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
