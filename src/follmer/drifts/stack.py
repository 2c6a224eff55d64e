"""The fully connected stack of the paper's Listings 1 and 3: Linear, [BatchNorm], Softplus."""

import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.paths import PATHS_AXIS

# The vmapped axis of data points, over which locals share their network.
LOCALS_AXIS = "locals"


def zero_linear(in_size: int, out_size: int, key: PRNGKeyArray) -> eqx.nn.Linear:
    """A linear layer that starts at zero, so that the process starts as the reference."""
    shell = eqx.filter_eval_shape(eqx.nn.Linear, in_size, out_size, key=key)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shell)


def linears(sizes: Sequence[tuple[int, int]], key: PRNGKeyArray) -> list[eqx.nn.Linear]:
    """Linear layers of (in, out) sizes, Equinox's initialisation from one draw.

    Random draws are slow to compile, so one serves all layers.
    """
    counts = [(in_size + 1) * out_size for in_size, out_size in sizes]
    draws = jax.random.uniform(key, (sum(counts),), minval=-1.0, maxval=1.0)
    layers, start = [], 0
    for (in_size, out_size), count in zip(sizes, counts, strict=True):
        table = draws[start : start + count].reshape(out_size, in_size + 1) / math.sqrt(in_size)
        shell = eqx.filter_eval_shape(eqx.nn.Linear, in_size, out_size, key=key)
        values = (table[:, 1:], table[:, 0])
        layers.append(eqx.tree_at(lambda one: (one.weight, one.bias), shell, values))
        start += count
    return layers


@jax.custom_jvp
def softplus(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """ln(1 + eˣ) up to rounding of 1, in less time than `jax.nn.softplus`."""
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


softplus.defjvps(lambda tangent, answer, x: tangent * jax.nn.sigmoid(x))


# The reverse pass keeps the two factors alone: products, slopes and the like are found again.
@functools.partial(jax.checkpoint, prevent_cse=False)
def scaled_softplus(
    x: Float[Array, " width"], scale: Float[Array, " width"]
) -> Float[Array, " width"]:
    """softplus(x · scale)."""
    return softplus(x * scale)


class BatchNorm(eqx.Module):
    """Batch normalisation over paths (and locals, where it serves them), without affine parameters.

    All paths of a step share t, so statistics over them are functions of t: the running ones are
    kept on `num_knots` times and interpolated, instead of one average that belongs to no time.
    """

    running_mean: Float[Array, "knots width"]
    running_variance: Float[Array, "knots width"]
    inference: bool
    axes: tuple[str, ...] = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)

    def __init__(self, width: int, num_knots: int, axes: tuple[str, ...]):
        self.running_mean = jnp.zeros((num_knots, width))
        self.running_variance = jnp.zeros((num_knots, width))
        self.inference = False
        self.axes = axes
        self.epsilon = 1e-5

    def centred(
        self, t: Float[Array, ""], h: Float[Array, " width"]
    ) -> tuple[Float[Array, " width"], Float[Array, " width"], Float[Array, " width"]]:
        """h less its mean, mean, variance: the batch's in training, the running ones in inference.

        h − mean stands once, and is multiplied by itself: the reverse pass keeps it alone.
        """
        if self.inference:
            position = t * (self.running_mean.shape[0] - 1)
            mean, variance = (
                _interpolate(jax.lax.stop_gradient(table), position)
                for table in (self.running_mean, self.running_variance)
            )
            return h - mean, mean, variance
        mean = jax.lax.pmean(h, self.axes)
        centred = h - mean
        return centred, mean, jax.lax.pmean(centred * centred, self.axes)

    def precision(self, variance: Float[Array, " width"]) -> Float[Array, " width"]:
        """1/√(variance + ε); in sampling less where the variance is not far above ε.

        In training the paths of a batch keep each other in bounds, however steep the drift is. One
        path alone would run away, and at t = 0, where all agree, rounding errors would grow.
        """
        if self.inference:
            return jnp.sqrt(variance) / (variance + self.epsilon)
        return jax.lax.rsqrt(variance + self.epsilon)

    def update(
        self,
        times: Float[Array, " steps"],
        mean: Float[Array, "steps width"],
        variance: Float[Array, "steps width"],
        weight: Float[Array | float, ""],
    ) -> "BatchNorm":
        """Move the running statistics by the share `weight` of the way to those at `times`."""
        knots = jnp.linspace(0.0, 1.0, self.running_mean.shape[0], dtype=mean.dtype)
        onto_knots = jax.vmap(lambda column: jnp.interp(knots, times, column), 1, 1)
        new = (
            (1 - weight) * self.running_mean + weight * onto_knots(mean),
            (1 - weight) * self.running_variance + weight * onto_knots(variance),
        )
        return eqx.tree_at(lambda norm: (norm.running_mean, norm.running_variance), self, new)


class Stack(eqx.Module):
    """`depth` hidden layers of `width` and a last linear layer that starts at zero."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[BatchNorm, ...]
    axes: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        width: int,
        depth: int,
        batch_norm: bool,
        key: PRNGKeyArray,
        num_knots: int = 21,
        of_locals: bool = False,
    ):
        sizes = [in_size, *[width] * depth]
        keys = jax.random.split(key, depth + 1)
        hidden = [eqx.nn.Linear(sizes[i], sizes[i + 1], key=one) for i, one in enumerate(keys[:-1])]
        self.layers = (*hidden, zero_linear(sizes[-1], out_size, keys[-1]))
        self.axes = (PATHS_AXIS, LOCALS_AXIS) if of_locals else (PATHS_AXIS,)
        self.norms = tuple(
            BatchNorm(width, num_knots, self.axes) for _ in range(depth * batch_norm)
        )

    def __call__(self, t: Float[Array, ""], h: Float[Array, " in"]) -> Float[Array, " out"]:
        return self._forward(t, h)[0]

    def track(
        self,
        times: Float[Array, " steps"],
        inputs: Float[Array, "paths steps *rows in"],
        weight: Float[Array | float, ""],
    ) -> "Stack":
        """The same stack with running statistics moved towards those of the given inputs."""

        def statistics(t: Float[Array, ""], h: Float[Array, "paths *rows in"]) -> list:
            def forward(h: Float[Array, "..."]) -> list:
                return self._forward(t, h)[1]

            for axis in reversed(self.axes):
                forward = jax.vmap(forward, 0, None, axis_name=axis)
            return forward(h)

        seen = jax.vmap(statistics, (0, 1))(times, inputs)
        norms = [
            norm.update(times, mean, variance, weight)
            for norm, (mean, variance) in zip(self.norms, seen, strict=True)
        ]
        return eqx.tree_at(lambda stack: stack.norms, self, tuple(norms))

    def _forward(self, t: Float[Array, ""], h: Float[Array, " in"]) -> tuple[Array, list]:
        seen = []
        for i, layer in enumerate(self.layers[:-1]):
            h = layer(h)
            if self.norms:
                centred, mean, variance = self.norms[i].centred(t, h)
                seen.append((mean, variance))
                h = scaled_softplus(centred, self.norms[i].precision(variance))
            else:
                h = softplus(h)
        return self.layers[-1](h), seen


def _interpolate(table: Float[Array, "knots width"], position: Float[Array, ""]) -> Array:
    left = jnp.clip(jnp.floor(position).astype(int), 0, table.shape[0] - 2)
    weight = position - left
    return (1 - weight) * table[left] + weight * table[left + 1]
