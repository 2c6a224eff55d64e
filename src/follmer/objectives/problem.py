"""What an objective sees: the diffusion, and the (mini-batch) density at its end."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts import AbstractTracked
from follmer.paths import PATHS_AXIS, Diffusion, Drift, Path, simulate, step_log_ratio

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

    def simulate(self, drift: Drift, key: PRNGKeyArray) -> Path:
        """`num_paths` paths of the drift, as one `Path` with a leading axis."""
        noise = jax.vmap(self.diffusion.noise)(jax.random.split(key, self.num_paths))
        return jax.vmap(lambda one: simulate(drift, self.diffusion, one), axis_name=PATHS_AXIS)(
            noise
        )

    def log_ratio(self, drift: Drift, paths: Path) -> Float[Array, " paths"]:
        """ln p(path) − ln q(path) of given paths, taken as data, under any drift."""
        paths = jax.lax.stop_gradient(paths)
        diffusion = self.diffusion
        each_step = functools.partial(step_log_ratio, drift, diffusion)
        if isinstance(drift, AbstractTracked):
            # Batch statistics are over the paths of one time.
            at_a_time = jax.vmap(each_step, (None, None, 0, 0), axis_name=PATHS_AXIS)
            over_steps = jax.vmap(at_a_time, (0, 0, 1, 1), 1)
            terms = over_steps(diffusion.starts, diffusion.lengths, paths.states, paths.increments)
        else:
            # One flat axis of all states: a single large matrix product per layer.
            flat = (-1, diffusion.dim)
            terms = jax.vmap(each_step)(
                jnp.tile(diffusion.starts, self.num_paths),
                jnp.tile(diffusion.lengths, self.num_paths),
                paths.states.reshape(flat),
                paths.increments.reshape(flat),
            ).reshape(self.num_paths, diffusion.num_steps)
        return jnp.sum(terms, axis=1)

    def log_terminal(self, ends: Float[Array, "paths dim"]) -> Float[Array, " paths"]:
        """ln f = ln p(X|x) p(x) − ln N(x|0,γI) at the paths' ends."""
        return jax.vmap(lambda x: self.log_density(x) - self.diffusion.log_reference(x))(ends)
