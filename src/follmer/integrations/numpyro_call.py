"""A NumPyro model and the arguments of its call, as functions that JAX traces."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.integrations.numpyro_sites import Site, in_plate, is_observation

# The share of an array's range from which rounding to single precision blurs it.
_COARSE = 1e-5

_Rows = Int[Array | np.ndarray, " rows"]


class Call(eqx.Module):
    """A model and the arguments of its call; arrays among them are traced like a target's data.

    `plate` is the one that the model subsamples, and `size` the number of all its rows.
    """

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plate: str | None = eqx.field(static=True, default=None)
    size: int = eqx.field(static=True, default=0)

    def at(self, rows: _Rows | None = None, key: PRNGKeyArray | int = 0) -> Callable[..., Any]:
        """The model on some rows of its subsampled plate, all by default, with a seed.

        The seed is set anew at each call: a handler kept between calls would hold on to tracers.
        """
        from numpyro import handlers

        seeded = handlers.seed(self.model, rng_seed=key)
        if self.plate is None:
            return seeded
        indices = jnp.arange(self.size) if rows is None else jnp.asarray(rows)

        def chosen(site: Site) -> Array | None:
            if site["type"] != "plate" or site["name"] != self.plate:
                return None
            # The model's own size of a mini-batch gives way.
            site["args"] = (site["args"][0], len(indices))
            return indices

        return handlers.substitute(seeded, substitute_fn=chosen)

    def constrained(self, free: PyTree, rows: _Rows | None = None) -> dict[str, Array]:
        """The latent sites at values on the real line."""
        from numpyro.infer.util import constrain_fn

        return constrain_fn(self.at(rows), self.args, self.kwargs, free)

    def traced(
        self, free: PyTree, rows: _Rows | None = None, key: PRNGKeyArray | None = None
    ) -> dict[str, Site]:
        """All sites at values on the real line; with a key, observations are drawn anew."""
        from numpyro import handlers

        # A single row will do for the latent sites, which are not in the plate.
        values = self.constrained(free, None if self.plate is None else np.zeros(1, int))
        model = self.at(rows) if key is None else handlers.uncondition(self.at(rows, key))
        substituted = handlers.substitute(model, data=values)
        return handlers.trace(substituted).get_trace(*self.args, **self.kwargs)

    def log_likelihoods(self, free: PyTree) -> dict[str, Array]:
        """The log density of every observation."""
        trace = self.traced(free)
        return {
            name: site["fn"].log_prob(site["value"])
            for name, site in trace.items()
            if is_observation(site)
        }


class LogDensity(eqx.Module):
    """The model's log density at values of its sites on the real line."""

    call: Call

    def __call__(self, free: PyTree) -> Float[Array, ""]:
        from numpyro.infer.util import potential_energy

        return -potential_energy(self.call.at(), self.call.args, self.call.kwargs, free)


class LogPrior(eqx.Module):
    """All of the log density but what stands inside the subsampled plate."""

    call: Call

    def __call__(self, free: PyTree) -> Float[Array, ""]:
        from numpyro import handlers
        from numpyro.infer.util import potential_energy

        def inside(site: Site) -> bool:
            return in_plate(site, self.call.plate or "")

        outside = handlers.block(self.call.at(np.zeros(1, int)), hide_fn=inside)
        return -potential_energy(outside, self.call.args, self.call.kwargs, free)


class RowLogLikelihood(eqx.Module):
    """The log density of some rows of the subsampled plate, one value for each."""

    call: Call

    def __call__(self, free: PyTree, rows: _Rows) -> Float[Array, " rows"]:
        total = jnp.zeros(len(rows))
        for site in self.call.traced(free, rows).values():
            if site["type"] != "sample" or not in_plate(site, self.call.plate or ""):
                continue
            (axis,) = (one.dim for one in site["cond_indep_stack"] if one.name == self.call.plate)
            log_prob = site["fn"].log_prob(site["value"])
            # The plate's own factor, all rows over these, is left to the target.
            scale = 1.0 if site["scale"] is None else site["scale"] * (len(rows) / self.call.size)
            by_row = jnp.moveaxis(scale * log_prob, axis, 0)
            total += by_row.reshape(len(rows), -1).sum(1)
        return total


class Outputs(eqx.Module):
    """The model's latent and deterministic sites."""

    call: Call

    def __call__(self, free: PyTree) -> PyTree:
        from numpyro.infer.util import constrain_fn

        call = self.call
        return constrain_fn(call.at(), call.args, call.kwargs, free, return_deterministic=True)


def on_device(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments with their arrays as JAX has them; None where that would change the model."""
    try:
        return jax.tree.map(_on_device, _in_order((args, kwargs)))
    # Whatever stands in the way.
    except Exception:
        return None


def is_traceable(call: Call, free: PyTree) -> bool:
    """Whether the model can be traced without the values of its arguments."""

    def everything(call: Call, free: PyTree) -> PyTree:
        return LogDensity(call)(free), Outputs(call)(free), call.log_likelihoods(free)

    try:
        eqx.filter_eval_shape(everything, call, free)
    # Whatever stands in the way; what is wrong with the model itself will show again.
    except Exception:
        return False
    return True


def bound(call: Call) -> Call:
    """The model with its arguments bound to it: they are constants of what is compiled."""
    return Call(lambda: call.model(*call.args, **call.kwargs), (), {}, call.plate, call.size)


def _in_order(tree: PyTree) -> PyTree:
    """The tree with dictionaries that keep their order; those of JAX are sorted by their keys."""

    def ordered(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if type(node) not in (dict, OrderedDict):
            raise TypeError(f"{type(node).__name__} may do more than keep its entries.")
        return OrderedDict((name, _in_order(value)) for name, value in node.items())

    return jax.tree.map(ordered, tree, is_leaf=lambda node: isinstance(node, dict))


def _on_device(leaf: Any) -> Any:
    """An array as JAX has it; anything else is known while tracing, and told apart by its hash."""
    if type(leaf) is np.ndarray:
        array = jnp.asarray(leaf)
        if array.dtype != leaf.dtype and _is_blurred(leaf, np.asarray(array)):
            raise TypeError(f"{array.dtype} is too coarse for the array.")
        return array
    if isinstance(leaf, np.ndarray):
        raise TypeError(f"{type(leaf).__name__} may compute in other ways than an array.")
    if not eqx.is_array(leaf):
        hash(leaf)
    return leaf


def _is_blurred(values: np.ndarray, rounded: np.ndarray) -> bool:
    """Whether differences of values get lost, such as those of times in seconds since 1970.

    A model may take them in NumPy, with twice the digits.
    """
    finite = np.isfinite(values)
    if not np.array_equal(np.isfinite(rounded), finite):
        return True
    error = np.abs(values[finite] - rounded[finite]).max(initial=0.0)
    return bool(error > _COARSE * np.ptp(values[finite])) if error > 0 else False
