"""What is sampled: any log density over a pytree of parameters."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.abstract import AbstractTarget, Layout
from follmer.targets.affine import Affine, Whitened
from follmer.targets.cost import Cost, cost_of
from follmer.targets.data import as_data, check_rows_alike, joined_data, sum_over_rows
from follmer.targets.density import CheckReport, preflight
from follmer.targets.predictive import Predictive
from follmer.targets.source import AbstractSource
from follmer.targets.space import Space
from follmer.tools.checks import as_key, options_checked
from follmer.tools.modules import replaced

LogDensity = Callable[[PyTree], Float[Array, ""]]
LogLikelihood = Callable[[PyTree, PyTree], Float[Array, " batch"]]


# Results on the way to one parameter's likelihood that may be held at once.
_BYTES_AT_ONCE = 8 * 2**20
# A mini-batch, whose size was chosen, may have so many times more: parts are computed twice.
_MORE_IN_BATCHES = 16
# Numbers that a processor computes with at once, at most.
_VECTOR = 16


class Target(AbstractTarget):
    """An unnormalised density, seen by the rest of the library as a function on R^dim.

    Either `Target(log_density, like)` or `Target(log_prior=, log_likelihood=, data=, like=)`, where
    `log_likelihood(theta, batch)` returns one value per data point and `data` is a pytree of arrays
    with a common leading axis. The second form can be trained on mini-batches. Large data are
    summed over some rows at a time: a row's value must not depend on the other rows.

    **Arguments:**

    - `log_density`: the parameters' log density up to a constant. Kept constants make
      `log_evidence` the evidence.
    - `like`: a pytree of floating arrays of the parameters' shapes; the values do not matter.
    - `constraints`: NumPyro constraints in a tree like `like` (leaves left out of a dict are
      unconstrained), or one for all. The densities are written in the constrained values; the
      change of variables is added here.
    - `outputs`: what draws are reported as: a function of the parameter tree, for derived
      quantities or other names. The parameters themselves where left out.
    - `predictive`: how y is distributed at new rows x; needed by `Posterior.predict` alone.
    """

    space: Space
    data: PyTree
    num_data: int | None = eqx.field(static=True)
    rows_at_once: int = eqx.field(static=True)  # whose likelihood is computed together
    gradient_cost: float = eqx.field(static=True)
    predictive: Predictive | None
    source: AbstractSource | None  # of targets that were made from another library's model
    affine: None
    _log_prior: LogDensity
    _log_likelihood: LogLikelihood | None
    _outputs: Callable[[PyTree], PyTree] | None

    @options_checked
    def __init__(
        self,
        log_density: LogDensity | None = None,
        like: PyTree = None,
        constraints: PyTree = None,
        *,
        log_prior: LogDensity | None = None,
        log_likelihood: LogLikelihood | None = None,
        data: PyTree = None,
        outputs: Callable[[PyTree], PyTree] | None = None,
        predictive: Predictive | None = None,
    ):
        _check_form(log_density, log_prior, log_likelihood, data, outputs)
        if like is None:
            raise InputError(
                "`like` is missing.", hint="like=jnp.zeros(2), or a dict of arrays of your shapes"
            )
        if not isinstance(predictive, Predictive | None):
            raise InputError(
                f"predictive is {type(predictive).__name__}, not a follmer.Predictive.",
                hint="follmer.Predictive(outputs=…, likelihood=…)",
            )
        self.space = Space(like, constraints)
        self.affine, self.source = None, None
        self.predictive = predictive
        self._outputs = outputs
        self._log_likelihood = log_likelihood
        if log_density is not None:
            self._log_prior, self.data, self.num_data = log_density, None, None
        else:
            assert log_prior is not None
            self._log_prior = log_prior
            self.data, self.num_data = as_data(data)
        self._check_outputs()
        self.rows_at_once, self.gradient_cost = self._checked_functions()

    @property
    def dim(self) -> int:
        """The number of unconstrained coordinates."""
        return self.space.dim

    @property
    def dtype(self) -> jnp.dtype:
        return self.space.dtype

    @property
    def layout(self) -> Layout:
        return Layout(self.dim)

    @property
    def given(self) -> PyTree:
        return self.data if self.source is None else self.source.data

    @property
    def prior(self) -> "Target":
        """The prior alone, as a target of its own; the same where the target has no data."""
        without = dict.fromkeys(("data", "num_data", "_log_likelihood", "predictive", "source"))
        return replaced(self, rows_at_once=0, **without)

    def whitened(self, affine: Affine | None) -> AbstractTarget:
        """The same target in flat coordinates z, x = affine(z); None changes nothing."""
        return self if affine is None else Whitened(self, affine)

    def with_data(self, data: PyTree) -> "Target":
        """The same model on other data, whose rows look like the present ones.

        Whatever was compiled for one serves the other where they have as many rows. Of a model of
        another library, `data` are its arguments or data containers by name; those left out stay.
        """
        if self.source is not None:
            return self.source.with_data(data)
        if self.num_data is None:
            raise InputError(
                "with_data was called, but the target has no data.",
                cause="the target was built from a log density",
                hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
            )
        data, num_data = as_data(data)
        check_rows_alike(self.data, data)
        new = replaced(self, data=data, num_data=num_data)
        if num_data == self.num_data:
            return new
        rows_at_once, gradient_cost = new._checked_functions()
        return replaced(new, rows_at_once=rows_at_once, gradient_cost=gradient_cost)

    def joined(self, mesh: Mesh | str) -> "Target":
        """The target of the rows of all processes, each of which has made one of its own rows.

        For data that do not fit one machine: every process keeps its rows, on the devices that it
        has along the axis "data" of the mesh, and nothing is gathered.
        """
        return self.with_data(joined_data(self.data, mesh))

    def log_density(self, x: Float[Array, " dim"], batch: PyTree = None) -> Float[Array, ""]:
        """ln p at unconstrained coordinates x, Jacobian included.

        With a `batch` of B rows the likelihood is its unbiased estimate (N/B) Σ_batch ln p(x_i|θ);
        without one, all the data are used.
        """
        return self.log_prior_density(x) + self.log_likelihood(x, batch)

    def log_prior_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """The prior's part of `log_density`: all of it where the target has no data."""
        theta, log_det = self.space.constrain_with_log_det(x)
        return jnp.asarray(self._log_prior(theta), self.dtype) + log_det

    def log_likelihood(self, x: Float[Array, " dim"], batch: PyTree = None) -> Float[Array, ""]:
        """The data's part of `log_density`; 0 where the target has none."""
        if self._log_likelihood is None or self.num_data is None:
            return jnp.zeros((), self.dtype)
        batch = self.data if batch is None else batch
        num_rows = jax.tree.leaves(batch)[0].shape[0]
        likelihood = functools.partial(self._log_likelihood, self.space.constrain(x))
        more = _MORE_IN_BATCHES if num_rows < self.num_data else 1
        total = sum_over_rows(likelihood, batch, more * self.rows_at_once)
        return (self.num_data / num_rows) * total.astype(self.dtype)

    def row_log_likelihoods(
        self, x: Float[Array, " dim"], batch: PyTree = None
    ) -> Float[Array, " rows"]:
        """ln p of each data point of a batch, or of all the data, at unconstrained coordinates."""
        if self._log_likelihood is None:
            raise InputError(
                "this target has no data, so no data point has a likelihood.",
                hint="Target(log_prior=…, log_likelihood=…, data=…, like=…)",
            )
        batch = self.data if batch is None else batch
        return self._log_likelihood(self.space.constrain(x), batch).astype(self.dtype)

    def constrain(self, x: Float[Array, " dim"], batch: PyTree = None) -> PyTree:
        """What is reported at unconstrained coordinates x: the parameter tree, or its `outputs`."""
        theta = self.space.constrain(x)
        return theta if self._outputs is None else self._outputs(theta)

    def parameters(self, x: Float[Array, " dim"]) -> PyTree:
        """The parameter tree at unconstrained coordinates x, whatever the `outputs`."""
        return self.space.constrain(x)

    def unconstrain(self, theta: PyTree) -> Float[Array, " dim"]:
        """The unconstrained coordinates of a parameter tree."""
        return self.space.unconstrain(theta)

    @options_checked
    def check(
        self,
        *,
        key: PRNGKeyArray,
        num_draws: int = 128,
        scale: float = 1.0,
        tolerated: float = 0.0,
    ) -> CheckReport:
        """Evaluate the density and its gradient at draws of N(0, scale² I) before any training.

        Raises `NonFiniteError` naming the leaf and a draw where either is not finite at more than
        a share `tolerated` of the draws.
        """
        return preflight(self, as_key(key), num_draws, scale, tolerated)

    def _checked_functions(self) -> tuple[int, float]:
        """Rows computed together, and what a gradient costs; an error for results of bad shape."""
        prior_cost = self._checked_prior()
        rows_at_once, likelihood_cost = self._checked_likelihood()
        return rows_at_once, prior_cost.of_gradient + likelihood_cost.of_gradient

    def _checked_prior(self) -> Cost:
        """What the prior (or the whole density) costs; an error unless it returns one number."""
        name = "log_density" if self._log_likelihood is None else "log_prior"
        cost, shape = checked_result(name, self._log_prior, self._theta_shapes())
        if shape != ():
            raise InputError(
                f"{name} returns shape {shape}; it must return one number.",
                cause="the sum over elements is missing",
                hint=f"return jnp.sum(...) at the end of {name}",
            )
        return cost

    def _checked_likelihood(self) -> tuple[int, Cost]:
        """Rows computed together (all, unless that takes much memory), and what all rows cost."""
        if self._log_likelihood is None or self.num_data is None:
            return 0, Cost(0.0, 0.0)
        theta, num_data = self._theta_shapes(), self.num_data
        cost, shape = checked_result("log_likelihood", self._log_likelihood, theta, self.data)
        if shape != (num_data,):
            raise InputError(
                f"log_likelihood returns shape {shape} for {num_data} data points; "
                "it must return one value per data point.",
                cause="the terms were summed or averaged over the data"
                if shape == ()
                else "a missing sum over an event axis, or an unwanted broadcast",
                hint="leave the sum over data points (and the N/B scaling) to the library",
            )
        half = num_data // 2
        if cost.bytes <= _BYTES_AT_ONCE or half == 0:
            return num_data, cost
        # What does not grow with the rows, such as the parameters themselves, is left out.
        fewer = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct((half, *array.shape[1:]), array.dtype), self.data
        )
        grown = cost.bytes - cost_of(self._log_likelihood, theta, fewer)[0].bytes
        per_row = max(grown, 1.0) / (num_data - half)
        return min(_whole_vectors(_BYTES_AT_ONCE / per_row), num_data), cost

    def _theta_shapes(self) -> PyTree:
        flat = jax.ShapeDtypeStruct((self.dim,), self.dtype)
        return jax.eval_shape(self.space.constrain, flat)

    def _check_outputs(self) -> None:
        if self._outputs is None:
            return
        _, shapes = _called("outputs", self._outputs, self._theta_shapes())
        if not jax.tree.leaves(shapes):
            raise InputError(
                "outputs returns no arrays, so draws would be reported as nothing.",
                cause="its return statement is missing",
                hint="return an array or a (nested) dict of arrays",
            )


def _whole_vectors(rows: float) -> int:
    """So many rows or somewhat fewer, that they fill the processor's vectors."""
    whole = int(rows) // _VECTOR * _VECTOR
    return max(whole or int(rows), 1)


def as_any_target(target: Any) -> AbstractTarget:
    """The target as it is, of whatever kind; an error for anything else."""
    return target if isinstance(target, AbstractTarget) else as_target(target)


def as_target(target: Any) -> Target:
    """The target as it is; an error for anything else, and where data points have locals."""
    if isinstance(target, Target | Whitened) and not target.has_locals:
        return target  # type: ignore[return-value]
    if isinstance(target, AbstractTarget):
        raise InputError(
            "this is not for targets with global and local variables.",
            hint="target.joint(), the same density as an ordinary target",
        )
    raise InputError(
        f"target is {type(target).__name__}, not a follmer.Target.",
        hint="follmer.Target(log_density, like=…)",
    )


def _check_form(
    log_density: Any, log_prior: Any, log_likelihood: Any, data: Any, outputs: Any
) -> None:
    parts = {"log_prior": log_prior, "log_likelihood": log_likelihood, "data": data}
    given = [name for name, value in parts.items() if value is not None]
    if log_density is not None and given:
        raise InputError(
            f"both log_density and {', '.join(given)} were given.",
            hint="log_density alone, or log_prior, log_likelihood and data together",
        )
    if log_density is None and len(given) < 3:
        missing = [name for name in parts if name not in given]
        raise InputError(
            f"{', '.join(missing)} missing."
            if given
            else "a target needs log_density, or log_prior, log_likelihood and data.",
            hint="Target(log_density, like=…) or "
            "Target(log_prior=…, log_likelihood=…, data=…, like=…)",
        )
    functions = {"log_density": log_density, **parts, "outputs": outputs}
    del functions["data"]
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise InputError(f"{name} is {type(function).__name__}, not a function.")


def _called(name: str, function: Callable[..., Any], *args: PyTree) -> tuple[Cost, PyTree]:
    """The cost of a user's function and the shapes it returns; its errors are told apart."""
    try:
        return cost_of(function, *args)
    except Exception as error:
        error.add_note(f"raised by your {name}, called with leaves of the shapes of `like`")
        if isinstance(error, jax.errors.JAXTypeError):
            error.add_note(
                "Likely cause: NumPy, or Python's if, while or float(), on values that JAX traces\n"
                "Try: jax.numpy instead of numpy, and jnp.where(condition, a, b) instead of if"
            )
        raise


def checked_result(
    name: str, function: Callable[..., Any], *args: PyTree
) -> tuple[Cost, tuple[int, ...]]:
    """The cost of a user's function and its result's shape; an error unless it is floating."""
    cost, result = _called(name, function, *args)
    if not hasattr(result, "shape"):
        raise InputError(f"{name} returns {type(result).__name__}, not an array.")
    if not jnp.issubdtype(result.dtype, jnp.floating):
        raise InputError(f"{name} returns dtype {result.dtype}; it must be floating point.")
    return cost, tuple(result.shape)
