"""What an objective sees: the diffusion, and the (mini-batch) density at its end."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.paths import PATHS_AXIS, Diffusion, Drift, Path, simulate

# An objective maps (drift, problem, key) to the loss and the paths' log weights, −F.
Objective = Callable[
    [Drift, "Problem", PRNGKeyArray], tuple[Float[Array, ""], Float[Array, " paths"]]
]


class Problem(NamedTuple):
    """Minimise E[F], F = −ln[ p(X|x_k) p(x_k) / N(x_k|0,γI) ] − ln[ p(path)/q(path) ]."""

    diffusion: Diffusion
    log_density: Callable[[Float[Array, " dim"]], Float[Array, ""]]
    num_paths: int
    is_minibatch: bool = False

    def simulate(self, drift: Drift, key: PRNGKeyArray, scored_by: Drift | None = None) -> Path:
        """`num_paths` paths of the drift, as one `Path` with a leading axis."""
        noise = jax.vmap(self.diffusion.noise)(jax.random.split(key, self.num_paths))
        return self.over_paths(lambda one: simulate(drift, self.diffusion, one, scored_by))(noise)

    def over_paths(self, function: Callable[..., object]) -> Callable[..., Path]:
        """vmap over the axis of paths, by name."""
        return jax.vmap(function, axis_name=PATHS_AXIS)  # type: ignore[return-value]

    def log_terminal(self, ends: Float[Array, "paths dim"]) -> Float[Array, " paths"]:
        """ln f = ln p(X|x) p(x) − ln N(x|0,γI) at the paths' ends."""
        return jax.vmap(lambda x: self.log_density(x) - self.diffusion.log_reference(x))(ends)
