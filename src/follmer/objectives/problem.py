"""What an objective sees: the diffusion, and the (mini-batch) density at its end."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.paths import (
    PATHS_AXIS,
    Diffusion,
    Drift,
    LogFactor,
    Path,
    simulate,
    step_log_ratio,
)
from follmer.tools.mesh import PATHS, over


class Problem(NamedTuple):
    """Minimise E[F], F = −ln[ p(X|x_k) p(x_k) / N(x_k|0,γI) ] − ln[ p(path)/q(path) ].

    `log_factor` is ln[ p(X|x) p(x) / N(x|0,γI) ]. Where the diffusion's base is a process that ends
    in the prior, p(path) is the base's, and it is ln p(X|x).
    """

    diffusion: Diffusion
    log_density: LogFactor
    log_factor: LogFactor
    num_paths: int
    is_minibatch: bool = False

    def simulate(self, drift: Drift, key: PRNGKeyArray) -> Path:
        """`num_paths` paths of the drift, as one `Path` with a leading axis."""

        def one(noise: Float[Array, "steps dim"]) -> Path:
            return simulate(drift, self.diffusion, noise)

        keys = over(PATHS, jax.random.split(key, self.num_paths))
        noise = over(PATHS, jax.vmap(self.diffusion.noise)(keys))
        return jax.vmap(one, axis_name=PATHS_AXIS)(noise)

    def log_terminal(self, ends: Float[Array, "paths dim"]) -> Float[Array, " paths"]:
        """ln f at the paths' ends."""
        return jax.vmap(self.log_factor)(ends)

    def log_ratio(self, drift: Drift, paths: Path) -> Float[Array, " paths"]:
        """ln p(path) − ln q(path) of given paths, taken as data, under any drift."""
        diffusion = self.diffusion
        states, increments = jax.lax.stop_gradient((paths.states, paths.increments))

        def one(t: Array, dt: Array, x: Array, increment: Array) -> Float[Array, ""]:
            move = diffusion.step(drift, diffusion.gamma, t, dt, x)
            return diffusion.total(step_log_ratio(move, increment))

        # What depends on the time alone is computed once for all paths.
        over_steps = jax.vmap(one)
        over_paths = jax.vmap(over_steps, (None, None, 0, 0), axis_name=PATHS_AXIS)
        terms = over_paths(diffusion.starts, diffusion.lengths, states, increments)
        return jnp.sum(terms, axis=1)
