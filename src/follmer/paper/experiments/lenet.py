"""The paper's networks for images: LeNet5 for digits, and its variation for photographs."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class LeNet(eqx.Module):
    """Two convolutions of 5 × 5 with pooling by 2, then three linear layers."""

    layers: tuple[Callable[[Array], Array], ...]

    def __init__(
        self,
        image: tuple[int, int, int],
        widths: tuple[int, int, int, int],
        activation: Callable[[Array], Array],
        pooling: Callable[[Array], Array],
        *,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 5)
        channels, side, _ = image
        first, second, third, fourth = widths
        # A convolution takes 4 pixels off each side, pooling halves it.
        left = ((side - 4) // 2 - 4) // 2
        self.layers = (
            eqx.nn.Conv2d(channels, first, 5, key=keys[0]),
            activation,
            pooling,
            eqx.nn.Conv2d(first, second, 5, key=keys[1]),
            activation,
            pooling,
            jnp.ravel,
            eqx.nn.Linear(second * left**2, third, key=keys[2]),
            activation,
            eqx.nn.Linear(third, fourth, key=keys[3]),
            activation,
            eqx.nn.Linear(fourth, 10, key=keys[4]),
        )

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, " 10"]:
        for layer in self.layers:
            x = layer(x)
        return x


def digits_network(key: PRNGKeyArray, tiny: bool = False) -> LeNet:
    """LeNet5 as the paper lists it: 44 426 parameters."""
    widths = (2, 3, 8, 8) if tiny else (6, 16, 120, 84)
    return LeNet((1, 28, 28), widths, jnp.tanh, eqx.nn.AvgPool2d(2, 2), key=key)


def photographs_network(key: PRNGKeyArray, tiny: bool = False) -> LeNet:
    """The same with ReLU, max-pooling and three colours: 62 006 parameters."""
    widths = (2, 3, 8, 8) if tiny else (6, 16, 120, 84)
    return LeNet((3, 32, 32), widths, jax.nn.relu, eqx.nn.MaxPool2d(2, 2), key=key)
