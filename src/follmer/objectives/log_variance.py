"""Log-variance (VarGrad): the variance of F over paths, whose states are data."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.objectives.abstract import AbstractObjective, Loss
from follmer.objectives.problem import Problem
from follmer.paths import Drift, euler_maruyama


class LogVariance(AbstractObjective):
    """Var over paths of F; nothing is differentiated through the path.

    **Arguments:**

    - `sampling_drift`: any drift `(t, x) -> v` that makes the paths (off-policy); by default the
      current one, detached.
    - `allow_minibatches`: accept the bias that mini-batch noise, seen by the square, brings.
    """

    sampling_drift: Drift | None = None
    allow_minibatches: bool = eqx.field(static=True, default=False)

    def loss(self, drift: Drift, problem: Problem, memory: PyTree, key: PRNGKeyArray) -> Loss:
        if problem.is_minibatch and not self.allow_minibatches:
            raise InputError(
                "the log-variance objective was given a mini-batch.",
                cause="its square sees the mini-batch noise, so its gradient is biased",
                hint="all the data (batch_size=None); the objective 'stl', which is unbiased; or "
                "LogVariance(allow_minibatches=True) to accept the bias",
            )
        if problem.num_paths < 2:
            raise InputError("the log-variance objective needs num_paths of at least 2.")
        if self.sampling_drift is None:
            paths = problem.simulate(drift, key)
        else:
            # Any paths will do; a plain drift has no Gaussian guess to step by.
            plain = problem.diffusion._replace(step=euler_maruyama)
            paths = problem._replace(diffusion=plain).simulate(self.sampling_drift, key)
        paths = jax.lax.stop_gradient(paths)
        log_weights = problem.log_terminal(paths.end) + problem.log_ratio(drift, paths)
        return jnp.var(log_weights, ddof=1), log_weights
