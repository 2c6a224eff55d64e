"""THE algorithm: neural Schrödinger–Föllmer sampling. Read this first.

A diffusion starts at 0 and is steered by a drift u_φ so that at time 1 it is a draw of the target.
`step` simulates paths, scores them by an objective and moves φ down its gradient; `sample` runs
fresh paths and weighs each exactly. All three functions are pure: jit them, vmap them.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from follmer.drifts import Sizes, build_drift, checked_drift, guide, is_tracked, show, track
from follmer.errors import InputError, closest, options_checked
from follmer.objectives import AbstractReplay, Objective, Problem, as_objective
from follmer.paths import (
    STEPS,
    Diffusion,
    Drift,
    GaussianGuess,
    Grid,
    Move,
    as_grid,
    bridge,
    grid_times,
    on_top,
    simulate,
)
from follmer.process import Process, check_reference
from follmer.targets import (
    StructuredTarget,
    Target,
    as_target,
    checked_batch_size,
    random_batch,
)
from follmer.tools.checks import as_key, fraction, positive_float, positive_int
from follmer.tools.optimizers import as_optimizer

# Sets of paths over which the statistics of a drift are averaged.
_NUM_SETTLING = 20


class State(NamedTuple):
    """Everything that training changes; a pytree of arrays."""

    parameters: PyTree
    average: PyTree  # exponential moving average of the parameters, used for sampling
    optimizer_state: optax.ApplyIfFiniteState
    iteration: Int[Array, ""]
    memory: PyTree = None  # what a replaying objective remembers


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


@dataclasses.dataclass(frozen=True, eq=False)
class NSFS:
    """A frozen description of the algorithm on one target.

    **Arguments:**

    - `target`: what is sampled.
    - `objective`: "stl", "det", "relative_entropy", "log_variance", or a function
      `(drift, problem, key) -> (loss, log_weights)`.
    - `drift`: "time_mlp", "additive", "score_guided", "mlp", "batch_norm_mlp", "resnet", "zero"
      (built with `drift_options`), an Equinox module, or a function `(t, x) -> u`.
    - `gamma`: diffusion coefficient; the untrained process ends in N(0, gamma I).
    - `num_steps`, `grid`: steps from time 0 to 1 and how they are spaced: "uniform", "geometric",
      or a function of `num_steps` that returns the times.
    - `step_rule`: "h_transform", which trains a diagonal Gaussian guess of the target beside the
      drift and steps towards it exactly; or "euler_maruyama".
    - `num_paths`: paths simulated per training step.
    - `batch_size`: data points per training step; None uses all.
    - `num_iterations`, `learning_rate`: Adam's budget and peak rate, decayed along a cosine;
      `learning_rate` may be an Optax schedule, which is then used as it is.
    - `optimizer`: any Optax optimiser instead of Adam.
    - `clip_norm`: gradients are scaled down to this norm.
    - `average_decay`: of the moving average of the parameters that is used for sampling.
    - `reference`: a `Process` that ends in the prior, in the target's coordinates. Training then
      steers away from it by the likelihood alone; weights remain those against the prior's density.
    """

    target: Target | StructuredTarget
    objective: str | Objective | AbstractReplay = "stl"
    drift: str | Drift = "time_mlp"
    drift_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gamma: float = 1.0
    num_steps: int = 32
    grid: str | Grid = "geometric"
    step_rule: str = "h_transform"
    num_paths: int = 64
    batch_size: int | None = None
    num_iterations: int = 2000
    learning_rate: float | optax.Schedule = 1e-2
    optimizer: optax.GradientTransformation | None = None
    clip_norm: float = 10.0
    average_decay: float = 0.99
    reference: Process | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, StructuredTarget):
            as_target(self.target)
        for name in ("num_steps", "num_paths", "num_iterations"):
            object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        for name in ("gamma", "clip_norm"):
            object.__setattr__(self, name, positive_float(name, getattr(self, name)))
        object.__setattr__(self, "average_decay", fraction("average_decay", self.average_decay))
        if not callable(self.learning_rate):
            rate = positive_float("learning_rate", self.learning_rate)
            object.__setattr__(self, "learning_rate", rate)
        as_optimizer(self.optimizer, self.learning_rate, self.num_iterations)
        as_objective(self.objective)
        if self.step_rule not in STEPS:
            raise InputError(
                f"step_rule={self.step_rule!r} is unknown.",
                hint=closest(str(self.step_rule), STEPS),
            )
        if self.reference is not None:
            check_reference(self)
        self.diffusion(None, self.target.data)
        size = checked_batch_size(self.batch_size, self.target.num_data)
        object.__setattr__(self, "batch_size", size)
        options = checked_drift(self.drift, self.drift_options, self._sizes, self.target.dtype)
        object.__setattr__(self, "drift_options", options)

    def init(self, key: PRNGKeyArray) -> State:
        """The state before training: the library's networks start at zero drift."""
        drift_key, memory_key = jax.random.split(as_key(key))
        drift = self._build_drift(drift_key)
        parameters, _ = _split(drift)
        objective = as_objective(self.objective)
        memory = None
        if isinstance(objective, AbstractReplay):
            if is_tracked(drift):
                raise InputError(
                    "a drift with BatchNorm cannot be trained by an objective with a memory.",
                    cause="its statistics are over paths at one time; a memory mixes times",
                    hint="drift='mlp', or objective='stl', 'det', 'relative_entropy', "
                    "'log_variance'",
                )
            batch = self.random_batch(memory_key, self.target.data)
            memory = objective.init(self._problem(batch), memory_key)
        return State(
            parameters,
            parameters,
            self._optimizer.init(parameters),
            jnp.zeros((), jnp.int32),
            memory,
        )

    def step(self, state: State, key: PRNGKeyArray, batch: PyTree = None) -> tuple[State, Info]:
        """One gradient step on fresh paths; a step whose gradient is not finite is skipped."""
        problem = self._problem(batch)
        objective = as_objective(self.objective)
        path_key, memory_key = jax.random.split(as_key(key))
        memory = self._refreshed(state, problem, batch, memory_key)

        def loss_and_weights(parameters: PyTree) -> tuple[Array, Array]:
            drift = self.assemble(parameters, batch, inference=False)
            if isinstance(objective, AbstractReplay):
                return objective.loss(drift, problem, memory, path_key)
            return objective(drift, problem, path_key)

        (loss, log_weights), gradient = jax.value_and_grad(loss_and_weights, has_aux=True)(
            state.parameters
        )
        # A loss that is not finite must not be trained on, even where its gradient is.
        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(loss), g, jnp.nan), gradient)
        updates, optimizer_state = self._optimizer.update(
            gradient, state.optimizer_state, state.parameters
        )
        parameters = optax.apply_updates(state.parameters, updates)
        # Early on a plain mean, so that the average forgets the start.
        weight = jnp.maximum(1.0 - self.average_decay, 1.0 / (state.iteration + 1.0))
        average = optax.incremental_update(parameters, state.average, weight)
        info = Info(
            loss=loss,
            elbo=jnp.mean(log_weights),
            gradient_norm=optax.tree.norm(gradient),
            skipped=~optimizer_state.last_finite,
        )
        return State(parameters, average, optimizer_state, state.iteration + 1, memory), info

    def sample(
        self,
        state: State,
        key: PRNGKeyArray,
        num_samples: int,
        num_steps: int | None = None,
        data: PyTree = None,
    ) -> Draws:
        """Independent draws with exact log weights, on a grid of any number of steps."""
        settling_key, key = jax.random.split(as_key(key))
        keys = jax.random.split(key, positive_int("num_samples", num_samples))
        parameters = self.settled(state.average, settling_key, data)
        x, log_weights = self.simulate(parameters, keys, num_steps, data)
        return Draws(jax.vmap(lambda x: self.target.constrain(x, data))(x), log_weights)

    def simulate(
        self,
        parameters: PyTree,
        keys: Key[Array, " draws"],
        num_steps: int | None = None,
        data: PyTree = None,
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """One unconstrained draw and log weight per key, from given drift parameters.

        With a batch of the data as `data`, the log weights are unbiased estimates of the exact.
        """
        drift = self.assemble(parameters, data, inference=True)
        diffusion = self.diffusion(num_steps, data)

        def one(key: PRNGKeyArray) -> tuple[Array, Array]:
            path = simulate(drift, diffusion, diffusion.noise(key))
            return path.end, self._log_terminal(path.end, data) + path.log_ratio

        return jax.vmap(one)(keys)

    def move(
        self,
        parameters: PyTree,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        x: Float[Array, " dim"],
    ) -> Move:
        """The process's step from x at time t, from given drift parameters."""
        drift = self.assemble(parameters, None, inference=True)
        return self.diffusion(None, None).step(drift, self.gamma, t, dt, x)

    def bridge_log_weights(
        self,
        parameters: PyTree,
        ends: Float[Array, "draws dim"],
        keys: Key[Array, " draws"],
        data: PyTree = None,
    ) -> Float[Array, " draws"]:
        """Log weights of reference paths that end in given points.

        Their mean over draws of the target is the evidence upper bound (EUBO).
        """
        drift = self.assemble(parameters, data, inference=True)
        diffusion = self.diffusion(None, data)

        def one(end: Float[Array, " dim"], key: PRNGKeyArray) -> Float[Array, ""]:
            path = bridge(drift, diffusion, end, diffusion.noise(key))
            return self._log_terminal(end, data) + path.log_ratio

        return jax.vmap(one)(ends, keys)

    def gradient_evaluations(self, iterations: int) -> int:
        """Gradients of the target that so much training takes."""
        objective = as_objective(self.objective)
        if isinstance(objective, AbstractReplay):
            refreshments = iterations // objective.refresh_every
            return refreshments * objective.gradients_per_refresh(self.num_paths)
        seen = self.num_steps if self.drift == "score_guided" else 0
        return iterations * self.num_paths * (1 + seen)

    def describe(self) -> dict[str, Any]:
        """The settings as JSON-able values; what is not the library's own is "custom"."""
        settings = {name: getattr(self, name) for name in algorithm_options()}
        if self.reference is not None:
            settings["reference"] = self.reference.describe()
        plain = str | int | float | Mapping | None
        return {
            name: value if isinstance(value, plain) else "custom"
            for name, value in settings.items()
        }

    def random_batch(self, key: PRNGKeyArray, data: PyTree) -> PyTree:
        """The batch of one training step: random rows, or all the data."""
        return random_batch(key, data, self.target.num_data, self.batch_size)

    @property
    def _sizes(self) -> Sizes:
        target = self.target
        if isinstance(target, StructuredTarget):
            # Whitened, N data points know the globals √N times better than one does.
            unit = 1.0 if target.space.affine is None else float(np.sqrt(target.num_data))
            return Sizes(target.global_dim, target.local_dim, target.num_features, unit)
        return Sizes(target.dim)

    @functools.cached_property
    def _optimizer(self) -> optax.GradientTransformation:
        optimizer = as_optimizer(self.optimizer, self.learning_rate, self.num_iterations)
        clipped = optax.chain(optax.clip_by_global_norm(self.clip_norm), optimizer)
        # Never give in to non-finite gradients: `fit` reads the counters and raises.
        return optax.apply_if_finite(clipped, max_consecutive_errors=jnp.iinfo(jnp.int32).max)

    @functools.cached_property
    def _fixed_part(self) -> PyTree:
        """The drift without its trained arrays."""
        if not isinstance(self.drift, str):
            return _split(self._build_drift(jax.random.key(0)))[1]
        # The library's drifts hold no other arrays: their shapes will do.
        shapes = eqx.filter_eval_shape(self._build_drift, jax.random.key(0))
        return jax.tree.map(
            lambda leaf: None if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, shapes
        )

    def _build_drift(self, key: PRNGKeyArray) -> Drift:
        target = self.target
        drift = build_drift(self.drift, self.drift_options, self._sizes, target.dtype, key)
        if self.step_rule == "h_transform":
            return GaussianGuess(drift, self._sizes.dim, target.dtype, self._sizes.local_dim)
        return drift

    def assemble(self, parameters: PyTree, batch: PyTree, *, inference: bool) -> Drift:
        """The drift with its parameters, and with what it may see of the batch."""
        drift = eqx.combine(parameters, self._fixed_part)
        if isinstance(self.target, StructuredTarget):
            drift = show(drift, (self.target.data if batch is None else batch).features)
        log_factor = self._log_terminal
        if self.reference is not None:
            log_factor = as_target(self.target).log_likelihood
        drift = guide(drift, lambda x: self.gamma * jax.grad(log_factor)(x, batch))
        return eqx.nn.inference_mode(drift, inference)

    def _log_terminal(self, x: Float[Array, " dim"], batch: PyTree) -> Float[Array, ""]:
        """ln f = ln p(X|x) p(x) − ln N(x|0,γI)."""
        return self.target.log_density(x, batch) - self.diffusion(None, batch).log_reference(x)

    def diffusion(self, num_steps: int | None, batch: PyTree) -> Diffusion:
        """The reference process of the coordinates that a batch takes."""
        times = grid_times(as_grid(self.grid), self.num_steps if num_steps is None else num_steps)
        step = STEPS[self.step_rule]
        if self.reference is not None:
            step = on_top(self.reference.move, step)
        return Diffusion(
            self.target.dim_with(batch),
            self.gamma,
            times,
            self.target.dtype,
            step,
            self.target.weights(batch),
        )

    def _problem(self, batch: PyTree) -> Problem:
        problem = Problem(
            diffusion=self.diffusion(None, batch),
            log_density=lambda x: self.target.log_density(x, batch),
            num_paths=self.num_paths,
            is_minibatch=_num_rows(batch) < (self.target.num_data or 0),
        )
        if self.reference is None:
            return problem
        return problem._replace(
            diffusion=problem.diffusion._replace(
                step=STEPS[self.step_rule], base=self.reference.move
            ),
            log_likelihood=lambda x: as_target(self.target).log_likelihood(x, batch),
        )

    def _refreshed(
        self, state: State, problem: Problem, batch: PyTree, key: PRNGKeyArray
    ) -> PyTree:
        """The memory of a replaying objective, renewed by paths of the averaged drift when due."""
        objective = as_objective(self.objective)
        if not isinstance(objective, AbstractReplay):
            return None
        drift = self.assemble(state.average, batch, inference=True)
        return jax.lax.cond(
            (state.iteration + 1) % objective.refresh_every == 0,
            lambda memory: objective.refresh(memory, drift, problem, key),
            lambda memory: memory,
            state.memory,
        )

    @property
    def has_statistics(self) -> bool:
        """Whether sampling needs statistics of the drift's paths, which training does not keep."""
        return is_tracked(self._fixed_part)

    def settled(self, parameters: PyTree, key: PRNGKeyArray, batch: PyTree = None) -> PyTree:
        """The parameters with the statistics that the drift's own paths have."""
        if not self.has_statistics:
            return parameters
        problem = self._problem(batch)

        def body(i: Array, parameters: PyTree) -> PyTree:
            drift = self.assemble(parameters, batch, inference=False)
            states = problem.simulate(drift, jax.random.fold_in(key, i)).states
            return _split(track(drift, problem.diffusion.starts, states, 1.0 / (i + 1)))[0]

        return jax.lax.fori_loop(0, _NUM_SETTLING, body, parameters)


NSFS.__init__ = options_checked(NSFS.__init__)  # type: ignore[method-assign]


def algorithm_options() -> list[str]:
    """The names of NSFS's options, target aside."""
    return [field.name for field in dataclasses.fields(NSFS) if field.name != "target"]


def _split(drift: Drift) -> tuple[PyTree, PyTree]:
    """Trained arrays, and the rest."""
    return eqx.partition(drift, eqx.is_inexact_array)


def _num_rows(batch: PyTree) -> float:
    leaves = jax.tree.leaves(batch)
    return leaves[0].shape[0] if leaves else float("inf")
