"""THE algorithm: neural Schrödinger–Föllmer sampling. Read this first.

A diffusion starts at 0 and is steered by a drift u_φ so that at time 1 it is a draw of the target.
`step` simulates paths, scores them by an objective and moves φ down its gradient; `sample` runs
fresh paths and weighs each exactly. All three functions are pure: jit them, vmap them.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from follmer.objectives import AbstractObjective, as_objective, objective_name
from follmer.paths import AbstractReference, Drift, Grid
from follmer.process import Process, described, process_options
from follmer.targets import AbstractTarget, checked_batch_size
from follmer.tools.checks import as_key, fraction, options_checked, positive_float, positive_int
from follmer.tools.keys import named_keys
from follmer.tools.modules import ByIdentity
from follmer.tools.optimizers import as_optimizer, as_rate, guarded


class State(NamedTuple):
    """Everything that training changes; a pytree of arrays."""

    parameters: PyTree
    average: PyTree  # exponential moving average of the parameters, used for sampling
    optimizer_state: optax.ApplyIfFiniteState
    iteration: Int[Array, ""]
    memory: PyTree = None  # what the objective remembers


class Info(NamedTuple):
    """What one step tells about itself. `elbo` is the mean log weight of the step's own paths."""

    loss: Float[Array, ""]
    elbo: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    skipped: Bool[Array, ""]


class Draws(NamedTuple):
    """Draws of the target in its own (constrained) space, with exact log importance weights."""

    position: PyTree
    log_weights: Float[Array, " draws"]


class NSFS(ByIdentity):
    """A frozen description of the algorithm on one target.

    **Arguments:**

    - `target`: what is sampled.
    - `objective`: "stl", "det", "relative_entropy", "log_variance", "adjoint_matching", one of
      `follmer.objectives`, or a function `(drift, problem, key) -> (loss, log_weights)`.
    - `drift`: "time_mlp", "additive", "score_guided", "mlp", "batch_norm_mlp", "resnet", "zero"
      (built with `drift_options`), an Equinox module, or a function `(t, x) -> u`.
    - `gamma`: diffusion coefficient; the untrained process ends in N(0, gamma I).
    - `num_steps`, `grid`: steps from time 0 to 1 and how they are spaced: "uniform", "geometric",
      or a function of `num_steps` that returns the times.
    - `step_rule`: "h_transform", which trains a diagonal Gaussian guess of the target beside the
      drift and steps towards it exactly; or "euler_maruyama".
    - `reference`: a process that ends in the prior, in the target's coordinates. Training then
      steers away from it by the likelihood alone; weights remain those against the prior's density.
    - `num_paths`: paths simulated per training step.
    - `batch_size`: data points per training step; None uses all.
    - `num_iterations`, `learning_rate`: Adam's budget and peak rate, decayed along a cosine; or an
      Optax schedule, used as it is. `optimizer`: any Optax optimiser instead of Adam.
    - `clip_norm`: gradients are scaled down to this norm.
    - `average_decay`: of the moving average of the parameters that is used for sampling.
    """

    process: Process
    objective: AbstractObjective
    num_paths: int
    batch_size: int | None
    num_iterations: int
    learning_rate: float | optax.Schedule
    optimizer: optax.GradientTransformation | None
    clip_norm: float
    average_decay: float

    @options_checked
    def __init__(
        self,
        target: AbstractTarget,
        objective: str | AbstractObjective = "stl",
        drift: str | Drift = "time_mlp",
        drift_options: Mapping[str, Any] | None = None,
        gamma: float = 1.0,
        num_steps: int = 32,
        grid: str | Grid = "geometric",
        step_rule: str = "h_transform",
        reference: AbstractReference | None = None,
        num_paths: int = 64,
        batch_size: int | None = None,
        num_iterations: int = 2000,
        learning_rate: float | optax.Schedule = 1e-2,
        optimizer: optax.GradientTransformation | None = None,
        clip_norm: float = 10.0,
        average_decay: float = 0.99,
    ):
        steered = (drift, {} if drift_options is None else drift_options)
        self.process = Process(target, *steered, gamma, num_steps, grid, step_rule, reference)
        self.objective = as_objective(objective)
        self.num_paths = positive_int("num_paths", num_paths)
        self.num_iterations = positive_int("num_iterations", num_iterations)
        self.batch_size = checked_batch_size(batch_size, target.num_data)
        as_optimizer(optimizer, learning_rate, num_iterations)
        self.learning_rate, self.optimizer = as_rate(learning_rate), optimizer
        self.clip_norm = positive_float("clip_norm", clip_norm)
        self.average_decay = fraction("average_decay", average_decay)
        self.objective.check(self.process)

    @property
    def target(self) -> AbstractTarget:
        return self.process.target

    @property
    def options(self) -> dict[str, Any]:
        """All options, as the constructor takes them; the target aside."""
        own = {name: getattr(self, name) for name in _TRAINING_OPTIONS}
        return {name: getattr(self.process, name) for name in process_options()} | own

    def changed(self, **changes: Any) -> "NSFS":
        """The same algorithm with other options, or on another target."""
        return NSFS(**{"target": self.target, **self.options, **changes})

    def init(self, key: PRNGKeyArray) -> State:
        """The state before training: the library's networks start at zero drift."""
        drift_key, batch_key, memory_key = named_keys(as_key(key), "drift", "batch", "memory")
        parameters = self.process.parameters(drift_key)
        batch = self.target.random_batch(batch_key, self.batch_size)
        memory = self.objective.init(self.process.problem(batch, self.num_paths), memory_key)
        iteration = jnp.zeros((), jnp.int32)
        return State(parameters, parameters, self._optimizer.init(parameters), iteration, memory)

    def step(self, state: State, key: PRNGKeyArray, batch: PyTree = None) -> tuple[State, Info]:
        """One gradient step on fresh paths; a step whose gradient is not finite is skipped."""
        path_key, memory_key = named_keys(as_key(key), "paths", "memory")
        problem = self.process.problem(batch, self.num_paths)
        averaged = functools.partial(self.process.drift_at, state.average, batch)
        memory = self.objective.refresh(
            state.memory, state.iteration, averaged, problem, memory_key
        )

        def loss_and_weights(parameters: PyTree) -> tuple[Array, Array]:
            drift = self.process.drift_at(parameters, batch, inference=False)
            return self.objective.loss(drift, problem, memory, path_key)

        (loss, log_weights), gradient = jax.value_and_grad(loss_and_weights, has_aux=True)(
            state.parameters
        )
        # A loss that is not finite must not be trained on, even where its gradient is.
        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(loss), g, jnp.nan), gradient)
        found = (gradient, state.optimizer_state, state.parameters)
        updates, optimizer_state = self._optimizer.update(*found)
        parameters = optax.apply_updates(state.parameters, updates)
        # Early on a plain mean, so that the average forgets the start.
        weight = jnp.maximum(1.0 - self.average_decay, 1.0 / (state.iteration + 1.0))
        average = optax.incremental_update(parameters, state.average, weight)
        norm, skipped = optax.tree.norm(gradient), ~optimizer_state.last_finite
        info = Info(loss, jnp.mean(log_weights), norm, skipped)
        return State(parameters, average, optimizer_state, state.iteration + 1, memory), info

    def sample(
        self, state: State, key: PRNGKeyArray, num_samples: int, num_steps: int | None = None
    ) -> Draws:
        """Independent draws with exact log weights, on a grid of any number of steps."""
        statistics_key, draw_key = named_keys(as_key(key), "statistics", "draws")
        parameters = self.process.with_statistics(state.average, self.num_paths, statistics_key)
        keys = jax.random.split(draw_key, positive_int("num_samples", num_samples))
        x, log_weights = self.process.simulate(parameters, keys, num_steps)
        return Draws(jax.vmap(self.target.constrain)(x), log_weights)

    def gradient_evaluations(self, iterations: int) -> int:
        """Gradients of the target that so much training takes."""
        seen = self.process.num_steps if self.process.drift == "score_guided" else 0
        return self.objective.gradient_evaluations(iterations, self.num_paths, seen)

    def describe(self) -> dict[str, Any]:
        """The options as JSON-able values; what is not the library's own is "custom"."""
        own = described({name: getattr(self, name) for name in _TRAINING_OPTIONS})
        return self.process.describe() | own | {"objective": objective_name(self.objective)}

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        adam = as_optimizer(self.optimizer, self.learning_rate, self.num_iterations)
        return guarded(adam, self.clip_norm)


_TRAINING_OPTIONS = [name for name in NSFS.__annotations__ if name != "process"]
# The names of all options, target aside.
ALGORITHM_OPTIONS = [*process_options(), *_TRAINING_OPTIONS]
