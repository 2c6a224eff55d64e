"""A point estimate by stochastic gradient descent."""

import jax
import numpy as np
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from follmer.baselines.iterating import Step, iterate
from follmer.baselines.starts import starts
from follmer.errors import InputError, NonFiniteError
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import StoredDraws
from follmer.targets import Target, as_target, checked_batch_size, random_batch
from follmer.tools.checks import as_key, options_checked, positive_int
from follmer.tools.optimizers import as_optimizer

_RATE = 1e-2
_HINT = "a smaller learning_rate, or optax.clip_by_global_norm before the optimizer"


@options_checked
def sgd(
    target: Target,
    *,
    key: PRNGKeyArray,
    num_iterations: int = 2000,
    batch_size: int | None = None,
    learning_rate: float | optax.Schedule | None = None,
    optimizer: optax.GradientTransformation | None = None,
    start: PyTree = None,
    progress: bool = True,
) -> Posterior:
    """The most probable parameters (MAP); every draw of the posterior is this one point.

    It maximises the log density in unconstrained coordinates, prior and change of variables
    included: the same point as in the constrained values only where there are no constraints. A
    normal prior is weight decay; a flat one makes it maximum likelihood.

    **Arguments:**

    - `batch_size`: data points per iteration, drawn anew; None uses all.
    - `learning_rate`: Adam's peak rate (by default 0.01), decayed along a cosine; or an Optax
      schedule, which is used as it is.
    - `optimizer`: any Optax optimiser instead of Adam. It sees gradients of the whole negative log
      density, which is a mean loss times the number of data points.
    - `start`: a parameter tree; by default a draw of N(0, 0.1²) in unconstrained coordinates.

    `history["loss"]` is the negative log density of each iteration's batch.
    """
    target = as_target(target)
    start_key, batch_key = jax.random.split(as_key(key))
    num_iterations = positive_int("num_iterations", num_iterations)
    batch_size = checked_batch_size(batch_size, target.num_data)
    if optimizer is not None and learning_rate is not None:
        raise InputError(
            "both learning_rate and optimizer were given.",
            hint="an optimizer with its own rate, such as optax.sgd(0.1), alone",
        )
    rate = _RATE if learning_rate is None else learning_rate
    descent = as_optimizer(optimizer, rate, num_iterations)
    step = _step(target, descent, batch_size, batch_key)
    x = starts(target, start, 1, start_key)[0]
    (x, _), losses = iterate(
        step,
        (x, descent.init(x)),
        target.data,
        num_records=num_iterations,
        name="SGD",
        hint=_HINT,
        progress=progress,
    )
    point = np.asarray(x)
    if not np.isfinite(point).all():
        raise NonFiniteError("SGD ended in a point that is not finite.", hint=_HINT)
    return Posterior(
        target,
        StoredDraws(point[None, None], "sgd", exact=False),
        {"loss": losses},
        gradient_evaluations=num_iterations,
    )


def _step(
    target: Target,
    descent: optax.GradientTransformation,
    batch_size: int | None,
    key: PRNGKeyArray,
) -> Step:
    """One descent on the negative log density of a batch, which is recorded."""

    def step(
        state: tuple[Array, PyTree], iteration: Int[Array, ""], data: PyTree
    ) -> tuple[tuple[Array, PyTree], Array]:
        x, optimizer_state = state
        batch_key = jax.random.fold_in(key, iteration)
        batch = random_batch(batch_key, data, target.num_data, batch_size)
        loss, gradient = jax.value_and_grad(lambda x: -target.log_density(x, batch))(x)
        updates, optimizer_state = descent.update(gradient, optimizer_state, x)
        return (optax.apply_updates(x, updates), optimizer_state), loss

    return step
