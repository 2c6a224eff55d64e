"""A target seen from the host: its values and gradients at many points, in one program."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from follmer.targets.abstract import AbstractTarget
from follmer.tools.mesh import DATA, PATHS, over, width
from follmer.tools.programs import compiled

# Points that a device evaluates together: where each is cheap, and where each takes long.
_AT_ONCE, _FEW_AT_ONCE = 64, 8
# Blocks of such points that one call takes, and numbers that it takes at most.
_BLOCKS, _NUMBERS = 64, 2**17
# Operations per gradient from which points are evaluated in few at a time.
_EXPENSIVE = 1e6


class Density:
    """Log density and gradient of a target at rows of points, as NumPy arrays; counts gradients."""

    def __init__(self, target: AbstractTarget):
        self.target = target
        self.dim, self.dtype = target.dim, target.dtype
        self.gradient_evaluations = 0
        at_once = _AT_ONCE if target.gradient_cost <= _EXPENSIVE else _FEW_AT_ONCE
        self._at_once = width(PATHS) * at_once
        self._blocks = int(np.clip(_NUMBERS // (self._at_once * self.dim), 1, _BLOCKS))

    def __call__(
        self, x: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """Values and gradients at the points, in double precision."""
        count = len(x)
        if count == 0:
            return np.zeros(0), np.zeros((0, self.target.dim))
        self.gradient_evaluations += count
        parts = [
            self._by_blocks(x[begin : begin + self._at_once * self._blocks])
            for begin in range(0, count, self._at_once * self._blocks)
        ]
        values, gradients = (np.concatenate(column) for column in zip(*parts, strict=True))
        return values.astype(float), gradients.astype(float)

    def _by_blocks(
        self, x: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """Filled up by the last point, so that any number of points takes one program."""
        count, size = len(x), self._at_once
        rows = np.minimum(np.arange(self._blocks * size), count - 1)
        blocks = np.asarray(x, self.dtype)[rows].reshape(-1, size, self.dim)
        values, gradients = _of_blocks(self.target, blocks, np.asarray(-(-count // size)))
        flat = np.asarray(values).ravel(), np.asarray(gradients).reshape(-1, self.dim)
        return flat[0][:count], flat[1][:count]

    def values(self, x: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """Log densities alone."""
        return self(x)[0]


@compiled
def _of_blocks(
    target: AbstractTarget,
    x: Float[Array | np.ndarray, "blocks points dim"],
    count: Int[Array | np.ndarray, ""],
) -> tuple[Float[Array, "blocks points"], Float[Array, "blocks points dim"]]:
    """Log density and gradient at each point of the first `count` blocks; zeros after them."""

    def body(i: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        values, gradients = values_and_gradients(target, jnp.asarray(x)[i])
        return found[0].at[i].set(values), found[1].at[i].set(gradients)

    nothing = jnp.zeros(x.shape[:2], target.dtype), jnp.zeros(x.shape, target.dtype)
    return jax.lax.fori_loop(0, count, body, nothing)


@compiled
def values_and_gradients(
    target: AbstractTarget, x: Float[Array | np.ndarray, "points dim"]
) -> tuple[Float[Array, " points"], Float[Array, "points dim"]]:
    """The target's log density and its gradient at each point."""
    return jax.vmap(jax.value_and_grad(target.log_density))(over(PATHS, jnp.asarray(x)))


@compiled
def values_by_batch(
    target: AbstractTarget, x: Float[Array, "points dim"], batch: PyTree
) -> Float[Array, " points"]:
    """The target's log density at each point, as a batch of its data tells it."""
    return jax.vmap(lambda x: target.log_density(x, over(DATA, batch)))(over(PATHS, x))
