"""The controlled process of one target: dΘ = u(t,Θ) dt + √γ dB from 0, and its exact weights.

It knows the drift's form but not its parameters, which training finds.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from follmer.drifts import (
    bind_batch,
    build_drift,
    checked_drift,
    guide,
    is_tracked,
    with_batch_statistics,
)
from follmer.errors import InputError, closest
from follmer.objectives import Problem
from follmer.paths import (
    STEPS,
    AbstractReference,
    Brownian,
    Diffusion,
    Drift,
    GaussianGuess,
    Grid,
    Move,
    as_grid,
    bridge,
    grid_times,
    simulate,
)
from follmer.targets import AbstractTarget, as_any_target
from follmer.tools.checks import positive_float, positive_int
from follmer.tools.modules import ByIdentity


class Process(ByIdentity):
    """A drift's form, the noise and the time grid, on one target. Options are those of `NSFS`."""

    target: AbstractTarget
    drift: str | Drift = "time_mlp"
    drift_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gamma: float = 1.0
    num_steps: int = 32
    grid: str | Grid = "geometric"
    step_rule: str = "h_transform"
    reference: AbstractReference | None = None
    skeleton: PyTree = None  # the drift without its trained arrays; always made here

    def __post_init__(self) -> None:
        self.target = as_any_target(self.target)
        self.gamma = positive_float("gamma", self.gamma)
        self.num_steps = positive_int("num_steps", self.num_steps)
        grid_times(as_grid(self.grid), self.num_steps)
        if self.step_rule not in STEPS:
            raise InputError(
                f"step_rule={self.step_rule!r} is unknown.",
                hint=closest(str(self.step_rule), STEPS),
            )
        layout, dtype = self.target.layout, self.target.dtype
        self.drift_options = checked_drift(self.drift, self.drift_options, layout, dtype)
        if not isinstance(self.reference, AbstractReference | None):
            raise InputError(
                f"reference is {type(self.reference).__name__}, not a process.",
                hint="follmer.paths.PriorProcess(posterior.sampler); "
                "or fit(target, reference=posterior)",
            )
        self.base.check(self)
        self.skeleton = self._skeleton()

    @property
    def base(self) -> AbstractReference:
        """The reference, or Brownian motion."""
        return Brownian() if self.reference is None else self.reference

    def parameters(self, key: PRNGKeyArray) -> PyTree:
        """The drift's parameters before training: the library's networks start at zero drift."""
        return _split(self._build(key))[0]

    def drift_at(self, parameters: PyTree, batch: PyTree, *, inference: bool = True) -> Drift:
        """The drift with its parameters, and with what it may see of the batch."""
        drift = bind_batch(eqx.combine(parameters, self.skeleton), self.target.features(batch))
        log_factor = self.log_factor(batch)
        drift = guide(drift, lambda x: self.gamma * jax.grad(log_factor)(x))
        return eqx.nn.inference_mode(drift, inference)

    def diffusion(self, num_steps: int | None, batch: PyTree) -> Diffusion:
        """Grid, noise and steps of sampling, in the coordinates that a batch takes."""
        times = grid_times(as_grid(self.grid), self.num_steps if num_steps is None else num_steps)
        return Diffusion(
            self.target.dim_with(batch),
            self.gamma,
            times,
            self.target.dtype,
            self.base.composed(STEPS[self.step_rule]),
            self.target.weights(batch),
        )

    def problem(self, batch: PyTree, num_paths: int) -> Problem:
        """What training minimises on a batch: the cost against the reference."""
        num_rows, num_data = self.target.num_rows(batch), self.target.num_data
        diffusion = self.diffusion(None, batch)
        return Problem(
            diffusion._replace(step=STEPS[self.step_rule], base=self.base.base),
            log_density=lambda x: self.target.log_density(x, batch),
            log_factor=self.log_factor(batch),
            num_paths=num_paths,
            is_minibatch=num_rows is not None and num_data is not None and num_rows < num_data,
        )

    def log_terminal(self, batch: PyTree) -> Callable[[Array], Array]:
        """ln f = ln p(X|x) p(x) − ln N(x|0,γI), as a function of x."""
        diffusion = self.diffusion(None, batch)
        return lambda x: self.target.log_density(x, batch) - diffusion.log_reference(x)

    def log_factor(self, batch: PyTree) -> Callable[[Array], Array]:
        """What paths of the reference are reweighted by: ln f; from a prior's process ln p(X|x)."""
        return self.base.log_factor(self.target, batch, self.log_terminal(batch))

    def simulate(
        self,
        parameters: PyTree,
        keys: Key[Array, " draws"],
        num_steps: int | None = None,
        batch: PyTree = None,
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """One unconstrained draw and exact log weight per key.

        With a batch of the data, the log weights are unbiased estimates of the exact ones.
        """
        drift, diffusion = self.drift_at(parameters, batch), self.diffusion(num_steps, batch)
        log_terminal = self.log_terminal(batch)

        def one(key: PRNGKeyArray) -> tuple[Array, Array]:
            path = simulate(drift, diffusion, diffusion.noise(key))
            return path.end, log_terminal(path.end) + path.log_ratio

        return jax.vmap(one)(keys)

    def bridge_log_weights(
        self, parameters: PyTree, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        """Log weights of Brownian paths that end in given points.

        Their mean over draws of the target is the evidence upper bound (EUBO).
        """
        drift, diffusion = self.drift_at(parameters, None), self.diffusion(None, None)
        log_terminal = self.log_terminal(None)

        def one(end: Float[Array, " dim"], key: PRNGKeyArray) -> Float[Array, ""]:
            path = bridge(drift, diffusion, end, diffusion.noise(key))
            return log_terminal(end) + path.log_ratio

        return jax.vmap(one)(ends, keys)

    def move(
        self,
        parameters: PyTree,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        x: Float[Array, " dim"],
    ) -> Move:
        """The step from x at time t."""
        drift = self.drift_at(parameters, None)
        return self.diffusion(None, None).step(drift, self.gamma, t, dt, x)

    @property
    def has_statistics(self) -> bool:
        """Whether sampling needs statistics of the drift's paths, which training does not keep."""
        return is_tracked(self.skeleton)

    def with_statistics(
        self, parameters: PyTree, num_paths: int, key: PRNGKeyArray, batch: PyTree = None
    ) -> PyTree:
        """The parameters with the statistics of the drift's own paths, where it keeps any."""
        if not self.has_statistics:
            return parameters
        problem = self.problem(batch, num_paths)
        return with_batch_statistics(
            parameters,
            lambda parameters: self.drift_at(parameters, batch, inference=False),
            problem.simulate,
            problem.diffusion.starts,
            key,
        )

    def describe(self) -> dict[str, Any]:
        """The options as JSON-able values; what is not the library's own is "custom"."""
        return described({name: getattr(self, name) for name in process_options()}) | {
            "reference": self.base.describe()
        }

    def _build(self, key: PRNGKeyArray) -> Drift:
        layout, dtype = self.target.layout, self.target.dtype
        drift = build_drift(self.drift, self.drift_options, layout, dtype, key)
        if self.step_rule == "h_transform":
            return GaussianGuess(drift, layout.dim, dtype, layout.local_dim)
        return drift

    def _skeleton(self) -> PyTree:
        if not isinstance(self.drift, str):
            return _split(self._build(jax.random.key(0)))[1]
        # The library's drifts hold no other arrays: their shapes will do.
        shapes = eqx.filter_eval_shape(self._build, jax.random.key(0))
        return jax.tree.map(
            lambda leaf: None if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, shapes
        )


def process_options() -> list[str]:
    """The names of a process's options, target aside."""
    names = [one.name for one in dataclasses.fields(Process)]
    return [name for name in names if name not in ("target", "skeleton")]


def described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as they are, and "custom" for anything else."""
    plain = str | int | float | Mapping | None
    return {name: one if isinstance(one, plain) else "custom" for name, one in options.items()}


def _split(drift: Drift) -> tuple[PyTree, PyTree]:
    """Trained arrays, and the rest."""
    return eqx.partition(drift, eqx.is_inexact_array)
