"""A target seen from the host: its values and gradients at many points, in one program."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from follmer.targets.abstract import AbstractTarget
from follmer.tools.mesh import DATA, PATHS, over, width
from follmer.tools.programs import bound, compiled

# Points that a device evaluates together: where each is cheap, and where each takes long.
_AT_ONCE, _FEW_AT_ONCE = 64, 8
# Blocks of such points that one call takes, and numbers that it takes at most.
_BLOCKS, _NUMBERS = 64, 2**17
# Operations per gradient from which points are evaluated in few at a time.
_EXPENSIVE = 1e6


class Density:
    """Log density and gradient of a target at rows of points, as NumPy arrays; counts gradients.

    A loop of many evaluations calls `run` itself, with `most` rows of points and how many of them
    count, and adds to `gradient_evaluations` when it is done.
    """

    def __init__(self, target: AbstractTarget):
        self.target = target
        self.dim, self.dtype = target.dim, target.dtype
        self.gradient_evaluations = 0
        at_once = _AT_ONCE if target.gradient_cost <= _EXPENSIVE else _FEW_AT_ONCE
        at_once *= width(PATHS)
        self.most = at_once * int(np.clip(_NUMBERS // (at_once * self.dim), 1, _BLOCKS))
        self.run = bound(_of_points, target, at_once)

    def __call__(
        self, x: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """Values and gradients at the points, in double precision."""
        self.gradient_evaluations += len(x)
        parts = [self._of_some(x[i : i + self.most]) for i in range(0, len(x), self.most)]
        if not parts:
            return np.zeros(0), np.zeros((0, self.dim))
        values, gradients = (np.concatenate(column) for column in zip(*parts, strict=True))
        return values.astype(float), gradients.astype(float)

    def _of_some(self, x: Float[np.ndarray, "some dim"]) -> tuple[np.ndarray, np.ndarray]:
        """Filled up by the last point, so that any number of points takes one program."""
        filled = np.pad(x, ((0, self.most - len(x)), (0, 0)), "edge")
        values, gradients = self.run(filled, np.asarray(len(x)))
        return np.asarray(values)[: len(x)], np.asarray(gradients)[: len(x)]

    def values(self, x: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """Log densities alone."""
        return self(x)[0]


@compiled
def _of_points(
    target: AbstractTarget,
    at_once: int,
    x: Float[Array | np.ndarray, "points dim"],
    count: Int[Array | np.ndarray, ""],
) -> tuple[Float[Array, " points"], Float[Array, "points dim"]]:
    """Log density and gradient at the first `count` points, some at once; zeros after them."""
    blocks = jnp.asarray(x, target.dtype).reshape(-1, at_once, target.dim)

    def body(i: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        values, gradients = values_and_gradients(target, blocks[i])
        return found[0].at[i].set(values), found[1].at[i].set(gradients)

    nothing = jnp.zeros(blocks.shape[:2], target.dtype), jnp.zeros(blocks.shape, target.dtype)
    values, gradients = jax.lax.fori_loop(0, -(-count // at_once), body, nothing)
    return values.ravel(), gradients.reshape(x.shape)


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
