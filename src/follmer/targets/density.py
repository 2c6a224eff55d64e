"""A target seen from the host: its values and gradients at many points, in one program."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.targets.abstract import AbstractTarget
from follmer.tools.mesh import DATA, PATHS, over, width
from follmer.tools.programs import compiled

# Points that a device evaluates together: where each is cheap, and where each takes long.
_AT_ONCE, _FEW_AT_ONCE = 64, 8
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

    def __call__(
        self, x: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """Values and gradients at the points, in double precision."""
        count, size = len(x), self._at_once
        if count == 0:
            return np.zeros(0), np.zeros((0, self.target.dim))
        self.gradient_evaluations += count
        # Filled up by the last point, so that any number of points takes one program.
        rows = np.minimum(np.arange(-(-count // size) * size), count - 1)
        blocks = np.asarray(x, self.dtype)[rows].reshape(-1, size, self.dim)
        parts = [values_and_gradients(self.target, block) for block in blocks]
        values, gradients = (np.concatenate(column) for column in zip(*parts, strict=True))
        return values[:count].astype(float), gradients[:count].astype(float)

    def values(self, x: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """Log densities alone."""
        return self(x)[0]


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
