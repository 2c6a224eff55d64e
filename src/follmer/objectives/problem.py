"""What an objective sees: the diffusion, and the (mini-batch) density at its end."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.paths import (
    PATHS_AXIS,
    Differentiate,
    Diffusion,
    Drift,
    LogFactor,
    Path,
    simulate_many,
    step_log_ratio,
)


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

    def simulate(
        self, drift: Drift, key: PRNGKeyArray, differentiate: Differentiate = "all"
    ) -> Path:
        """`num_paths` paths of the drift, as one `Path` with a leading axis.

        Training is faster where it is told which score of the path it will `differentiate`.
        """
        return simulate_many(drift, self.diffusion, self.num_paths, key, differentiate)

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
