"""Models with global variables Φ and one local variable θ_i per data point, θ_i ⫫ θ_j | Φ."""

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.targets.abstract import AbstractTarget, Layout
from follmer.targets.affine import Affine
from follmer.targets.data import as_data, check_rows_alike, in_chunks, take
from follmer.targets.density import CheckReport, missing_rows, preflight
from follmer.targets.local import Frame, LocalLogDensity, Placement, follow, local_frame
from follmer.targets.rows import Rows, Tangent, flat_rows, num_rows, standardisation
from follmer.targets.space import Space, named_leaves
from follmer.targets.target import Target, checked_result
from follmer.tools.checks import as_key, options_checked
from follmer.tools.modules import replaced
from follmer.tools.programs import compiled

# Locals whose frames are found, or density is checked, at once.
_ROWS_AT_ONCE, _ROWS_CHECKED = 1024, 32


class StructuredSpace(eqx.Module):
    """The coordinates of globals and of any number of locals."""

    shared: Space
    local: Space

    def describe(self) -> dict[str, Any]:
        """A JSON-able fingerprint, kept in saved files; the number of locals is not part of it."""
        return {"global": self.shared.describe(), "local": self.local.describe()}


class StructuredTarget(AbstractTarget):
    """A joint density p(Φ) Π_i p(θ_i|Φ) p(x_i|θ_i,Φ) over globals Φ and locals θ_1 … θ_N.

    All functions are written for one local and one data point; batches, the N/B scaling and the
    constants are the library's job. Draws are dicts {"global": Φ, "local": θ}, where the leaves of
    θ have an axis of data points.

    **Arguments:**

    - `log_prior_global`: ln p(Φ), a function of Φ.
    - `log_prior_local`: ln p(θ_i|Φ), a function of (θ_i, Φ).
    - `log_likelihood`: ln p(x_i|θ_i,Φ), a function of (θ_i, Φ, x_i).
    - `data`: a pytree of arrays with a common leading axis, one row x_i per data point.
    - `like_global`, `like_local`: pytrees of floating arrays of the shapes of Φ and of one θ_i.
    - `constraints`: {"global": …, "local": …}, each as for `Target`; either may be left out.
    """

    has_locals: ClassVar[bool] = True
    space: StructuredSpace
    data: Rows
    num_data: int = eqx.field(static=True)
    affine: Affine | None  # of the globals; with one, locals are placed by frames of their own
    gradient_cost: float = eqx.field(static=True)
    log_prior_global: Callable[[PyTree], Float[Array, ""]]
    log_prior_local: Callable[[PyTree, PyTree], Float[Array, ""]]
    log_likelihood: Callable[[PyTree, PyTree, PyTree], Float[Array, ""]]
    _constraints: dict[str, PyTree]
    _standard: tuple[Array, Array]  # mean and scale of the features
    _tangent_sum: Tangent | None

    @options_checked
    def __init__(
        self,
        *,
        log_prior_global: Callable[[PyTree], Float[Array, ""]],
        log_prior_local: Callable[[PyTree, PyTree], Float[Array, ""]],
        log_likelihood: Callable[[PyTree, PyTree, PyTree], Float[Array, ""]],
        data: PyTree,
        like_global: PyTree,
        like_local: PyTree,
        constraints: dict[str, PyTree] | None = None,
    ):
        constraints = _checked_constraints(constraints)
        self.log_prior_global = log_prior_global
        self.log_prior_local = log_prior_local
        self.log_likelihood = log_likelihood
        self._constraints = constraints
        self.space = StructuredSpace(
            Space(like_global, constraints.get("global")),
            Space(like_local, constraints.get("local")),
        )
        if self.space.shared.dtype != self.space.local.dtype:
            raise InputError(
                f"like_global is {self.space.shared.dtype}, like_local {self.space.local.dtype}.",
                hint="one floating precision for both",
            )
        self.affine = self._tangent_sum = None
        points, self.num_data = as_data(data)
        self._standard = standardisation(points, self.dtype)
        self.data = self.rows(points)
        self.gradient_cost = self._checked_cost()

    @property
    def global_dim(self) -> int:
        return self.space.shared.dim

    @property
    def local_dim(self) -> int:
        return self.space.local.dim

    @property
    def num_features(self) -> int:
        return self.data.features.shape[1]

    @property
    def dim(self) -> int:
        """The number of unconstrained coordinates of globals and all locals."""
        return self.dim_with(self.data)

    @property
    def dtype(self) -> jnp.dtype:
        return self.space.shared.dtype

    @property
    def layout(self) -> Layout:
        # Whitened, N data points know the globals √N times better than one does.
        unit = 1.0 if self.affine is None else float(np.sqrt(self.num_data))
        return Layout(self.global_dim, self.local_dim, self.num_features, unit)

    def features(self, batch: Rows | None) -> Float[Array, "rows features"]:
        return (self.data if batch is None else batch).features

    def dim_with(self, batch: Rows | None) -> int:
        """The coordinates of the globals and of a batch's locals."""
        return self.global_dim + self.local_dim * num_rows(self.data if batch is None else batch)

    def weights(self, batch: Rows | None) -> Float[Array, " dim"] | None:
        """How often each coordinate counts where a batch stands for all data points."""
        batch = self.data if batch is None else batch
        if num_rows(batch) == self.num_data:
            return None
        locals_ = jnp.full(self.local_dim * num_rows(batch), self._scaling(batch), self.dtype)
        return jnp.concatenate([jnp.ones(self.global_dim, self.dtype), locals_])

    def whitened(self, affine: Affine | None, *, progress: bool = True) -> "StructuredTarget":
        """The same target with Φ = affine(z), and each local in the frame of its own Laplace fit.

        A frame is found at Φ = affine.mean, and follows Φ from there.
        """
        if affine is None:
            return self
        target = replaced(self, affine=affine)
        rows = target.rows(self.data.data, progress=progress)
        total = jax.tree.map(lambda column: jnp.sum(column, axis=0), rows.tangents)
        return replaced(target, data=rows, _tangent_sum=total)

    def with_data(self, data: PyTree) -> "StructuredTarget":
        """The same model of other data points, in its own coordinates."""
        data, num_data = as_data(data)
        check_rows_alike(self.data.data, data)
        plain = replaced(self, affine=None, _tangent_sum=None, num_data=num_data)
        plain = replaced(plain, _standard=standardisation(data, self.dtype))
        plain = replaced(plain, data=plain.rows(data))
        plain = replaced(plain, gradient_cost=plain._checked_cost())
        return plain.whitened(self.affine)

    def rows(self, data: PyTree, *, progress: bool = True) -> Rows:
        """Data points as `simulate` needs them; new ones must look like the target's own."""
        mean, scale = self._standard
        features = (flat_rows(data, self.dtype) - mean) / scale
        if self.affine is None:
            return Rows(data, features)
        centre = self.affine.mean
        frames = self.frames(centre, data, progress=progress)
        tangents = in_chunks(
            lambda part: _tangents(self, centre, *part),
            (frames, data),
            _ROWS_AT_ONCE,
            "weighing data points",
            progress=progress,
        )
        return Rows(data, features, frames, tangents)

    def frames(
        self, centre: Float[Array, " global"], data: PyTree, *, progress: bool = True
    ) -> Frame:
        """Where the locals of data points lie for one value of the globals' free coordinates."""
        locate = functools.partial(_locate, self, centre)
        return in_chunks(locate, data, _ROWS_AT_ONCE, "locating locals", progress=progress)

    def _new_rows(self, data: PyTree, progress: bool) -> Rows:
        """Checked data points that were not trained on."""
        data, _ = as_data(data)
        check_rows_alike(self.data.data, data)
        return self.rows(data, progress=progress)

    def chosen_rows(
        self, rows: Any, data: PyTree, *, progress: bool = True
    ) -> tuple[Rows, Int[np.ndarray, " rows"]]:
        """Data points by their places among the target's, or new ones, whose places come after."""
        if data is not None:
            if rows is not None:
                raise InputError("both rows and data were given.", hint="one of them")
            new = self._new_rows(data, progress)
            return new, self.num_data + np.arange(num_rows(new))
        if rows is None:
            return self.data, np.arange(self.num_data)
        places = np.asarray(rows)
        if places.ndim != 1 or not np.issubdtype(places.dtype, np.integer):
            raise InputError(
                f"rows is {places.dtype}{list(places.shape)}, not a list of whole numbers.",
                hint=f"places from 0 to {self.num_data - 1}",
            )
        if places.size and not (places.min() >= 0 and places.max() < self.num_data):
            raise InputError(
                f"rows holds {places.min()} … {places.max()}; the data points are 0 … "
                f"{self.num_data - 1}.",
                hint="data=… for data points that the target does not have",
            )
        return take(self.data, places), places

    def log_density(self, x: Float[Array, " dim"], batch: Rows | None = None) -> Float[Array, ""]:
        """ln p(Φ) + (N/B) Σ_batch ln p(θ_i, x_i|Φ) at unconstrained coordinates of Φ and the θ_i.

        Jacobians are included. Without a batch, all the data are used. With one, what all data
        points say of the globals to first order is known, and only the rest is estimated.
        """
        batch = self.data if batch is None else batch
        terms = self.local_log_densities(x, batch)
        value = self.global_log_density(x)
        if batch.tangents is not None and num_rows(batch) != self.num_data:
            assert self.affine is not None
            assert self._tangent_sum is not None
            shift = self.affine(x[: self.global_dim]) - self.affine.mean
            terms -= batch.tangents(shift)
            value += self._tangent_sum(shift)
        return value + self._scaling(batch) * jnp.sum(terms)

    def global_log_density(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """ln p(Φ), Jacobian included; only the first coordinates matter."""
        y, stretched = self._free_globals(x)
        return self._log_global(y) + stretched

    def local_log_densities(self, x: Float[Array, " dim"], batch: Rows) -> Float[Array, " rows"]:
        """ln p(θ_i|Φ) + ln p(x_i|θ_i,Φ) of each row, Jacobian included."""
        phi = self.space.shared.constrain(self._free_globals(x)[0])

        def one(free: Array, log_det: Array, row: PyTree) -> Float[Array, ""]:
            return self._local_log_density(free, phi, row) + log_det

        free, log_det = self._placed(x, batch)
        return jax.vmap(one)(free, log_det, batch.data)

    def constrain(self, x: Float[Array, " dim"], batch: Rows | None = None) -> dict[str, PyTree]:
        """Globals and the batch's locals at unconstrained coordinates."""
        free, _ = self._placed(x, self.data if batch is None else batch)
        return {
            "global": self.space.shared.constrain(self._free_globals(x)[0]),
            "local": jax.vmap(self.space.local.constrain)(free),
        }

    def unconstrain(self, theta: dict[str, PyTree]) -> Float[Array, " dim"]:
        """The unconstrained coordinates of {"global": Φ, "local": all θ_i}."""
        if not isinstance(theta, dict) or theta.keys() != {"global", "local"}:
            raise InputError(
                "globals and locals are wanted as a dict of both.",
                hint='{"global": …, "local": …}, as `sample` gives them',
            )
        sizes = {name: jnp.shape(leaf)[:1] for name, leaf in named_leaves(theta["local"])}
        wrong = [name for name, size in sizes.items() if size != (self.num_data,)]
        if wrong:
            raise InputError(
                f"the locals' leaf {wrong[0]} has leading axis {sizes[wrong[0]]}; there are "
                f"{self.num_data} data points.",
                cause="one local too many or too few, or axes in another order",
                hint="one row per data point, in the order of `data`",
            )
        shared = self.space.shared.unconstrain(theta["global"])
        shared = shared if self.affine is None else self.affine.inverse(shared)
        free = jax.vmap(self.space.local.unconstrain)(theta["local"])
        if self.data.frames is not None:
            placements = self._placements(shared, self.data)
            free = jax.vmap(lambda placement, x: placement.inverse(x))(placements, free)
        return jnp.concatenate([shared, free.ravel()])

    def free_log_densities(self) -> tuple[LocalLogDensity, Callable[[Array], Float[Array, ""]]]:
        """ln p(θ_i, x_i|Φ) and ln p(Φ) in coordinates that nothing has whitened."""

        def log_local(x: Array, y: Array, row: PyTree) -> Float[Array, ""]:
            return self._local_log_density(x, self.space.shared.constrain(y), row)

        return log_local, self._log_global

    def joint(self) -> Target:
        """The same density as an ordinary `Target` over {"global": Φ, "local": all θ_i}.

        For samplers that know nothing of the structure: the full, coupled drift, Markov chains.
        Mini-batches thin the likelihood; all locals take part in every step.
        """

        def log_prior(theta: dict[str, PyTree]) -> Float[Array, ""]:
            phi = theta["global"]
            terms = jax.vmap(lambda one: self.log_prior_local(one, phi))(theta["local"])
            return self.log_prior_global(phi) + jnp.sum(terms)

        def log_likelihood(theta: dict[str, PyTree], batch: PyTree) -> Float[Array, " batch"]:
            indices, rows = batch
            function = jax.vmap(self.log_likelihood, (0, None, 0))
            return function(take(theta["local"], indices), theta["global"], rows)

        repeat = functools.partial(_repeated, count=self.num_data)
        like_global, like_local = self.space.shared.like(), self.space.local.like()
        return Target(
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            data=(jnp.arange(self.num_data), self.data.data),
            like={"global": like_global, "local": jax.tree.map(repeat, like_local)},
            constraints=self._constraints,
        )

    def subset(self, indices: Int[Any, " rows"]) -> "StructuredTarget":
        """The same model of fewer data points."""
        rows = take(self.data, jnp.asarray(indices))
        return replaced(self, data=rows, num_data=num_rows(rows))

    @options_checked
    def check(
        self,
        *,
        key: PRNGKeyArray,
        num_draws: int = 128,
        scale: float = 1.0,
        tolerated: float = 0.0,
    ) -> CheckReport:
        """`Target.check` of the joint density of some data points."""
        chosen = np.linspace(0, self.num_data - 1, min(self.num_data, _ROWS_CHECKED)).astype(int)
        # Missing values are looked for in all data points, and one of them is enough to see.
        missing = [missing_rows(leaf)[:1] for leaf in jax.tree.leaves(self.data.data)]
        few = self.subset(np.unique(np.concatenate([chosen, *missing]))).joint()
        return preflight(few, as_key(key), num_draws, scale, tolerated, self.data.data)

    def _placed(self, x: Float[Array, " dim"], batch: Rows) -> tuple[Array, Array]:
        """Free coordinates of the batch's locals, and ln|det| of their frames."""
        z = x[self.global_dim :].reshape(-1, self.local_dim)
        if batch.frames is None:
            return z, jnp.zeros(len(z), self.dtype)
        placements = self._placements(x[: self.global_dim], batch)
        return jax.vmap(lambda placement, z: placement(z))(placements, z), placements.log_det

    def _placements(self, shared: Float[Array, " global"], batch: Rows) -> Placement:
        """Where the globals at whitened coordinates put each of the batch's locals."""
        affine = self.affine
        assert affine is not None
        assert batch.frames is not None
        y = affine(shared)
        log_local, _ = self.free_log_densities()

        def place(frame: Frame, row: PyTree) -> Placement:
            return follow(frame, log_local, y, y - affine.mean, row)

        return jax.vmap(place)(batch.frames, batch.data)

    def _free_globals(self, x: Float[Array, " dim"]) -> tuple[Array, Array]:
        """The globals' free coordinates, and ln|det| of the map to them."""
        if self.affine is None:
            return x[: self.global_dim], jnp.zeros((), self.dtype)
        return self.affine(x[: self.global_dim]), self.affine.log_det

    def _log_global(self, y: Float[Array, " global"]) -> Float[Array, ""]:
        phi, log_det = self.space.shared.constrain_with_log_det(y)
        return jnp.asarray(self.log_prior_global(phi), self.dtype) + log_det

    def _local_log_density(self, free: Array, phi: PyTree, row: PyTree) -> Float[Array, ""]:
        theta, log_det = self.space.local.constrain_with_log_det(free)
        value = self.log_prior_local(theta, phi) + self.log_likelihood(theta, phi, row)
        return jnp.asarray(value, self.dtype) + log_det

    def tangent(self, centre: Float[Array, " global"], frame: Frame, row: PyTree) -> Tangent:
        """ln p(x_i|Φ) and its slope at a value of the globals, the local integrated out."""
        log_local, _ = self.free_log_densities()

        def evidence(y: Float[Array, " global"]) -> Float[Array, ""]:
            placement = follow(frame, log_local, y, y - centre, row)
            value = log_local(placement.mean, y, row) + placement.log_det
            return value + 0.5 * self.local_dim * math.log(2 * math.pi)

        return Tangent(*jax.value_and_grad(evidence)(centre))

    def _scaling(self, batch: Rows) -> float:
        return self.num_data / max(num_rows(batch), 1)

    def _checked_cost(self) -> float:
        """Operations in a gradient; an error unless all functions return one number."""
        shapes = {}
        for name, space in (("global", self.space.shared), ("local", self.space.local)):
            free = jax.ShapeDtypeStruct((space.dim,), space.dtype)
            shapes[name] = jax.eval_shape(space.constrain, free)
        row = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), self.data.data)
        phi, theta = shapes["global"], shapes["local"]
        calls: dict[str, tuple[Any, ...]] = {
            "log_prior_global": (self.log_prior_global, phi),
            "log_prior_local": (self.log_prior_local, theta, phi),
            "log_likelihood": (self.log_likelihood, theta, phi, row),
        }
        costs = {}
        for name, (function, *arguments) in calls.items():
            if not callable(function):
                raise InputError(f"{name} is {type(function).__name__}, not a function.")
            cost, shape = checked_result(name, function, *arguments)
            costs[name] = cost.of_gradient
            if shape != ():
                raise InputError(
                    f"{name} returns shape {shape}; it must return one number.",
                    cause="the sum over elements is missing, or it was written for a batch",
                    hint="a function of one local and one data point that ends in jnp.sum(…)",
                )
        of_local = costs["log_prior_local"] + costs["log_likelihood"]
        return costs["log_prior_global"] + self.num_data * of_local


@compiled
def _locate(target: StructuredTarget, centre: Float[Array, " global"], rows: PyTree) -> Frame:
    """The frames of some data points' locals."""
    log_local, _ = target.free_log_densities()
    locate = functools.partial(local_frame, log_local, target.local_dim, centre)
    return jax.vmap(locate)(rows)


@compiled
def _tangents(
    target: StructuredTarget, centre: Float[Array, " global"], frames: Frame, rows: PyTree
) -> Tangent:
    return jax.vmap(lambda frame, row: target.tangent(centre, frame, row))(frames, rows)


def _checked_constraints(constraints: Any) -> dict[str, PyTree]:
    if constraints is None:
        return {}
    if not isinstance(constraints, dict) or not constraints.keys() <= {"global", "local"}:
        raise InputError(
            "`constraints` of a structured target must be a dict of 'global' and 'local'.",
            hint='constraints={"global": {"sigma": constraints.positive}, "local": …}',
        )
    return constraints


def _repeated(leaf: Any, count: int) -> Array:
    return jnp.broadcast_to(jnp.asarray(leaf), (count, *jnp.shape(leaf)))
