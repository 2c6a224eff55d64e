"""A NumPyro model as a target."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.targets import Target

# The share of an array's range from which rounding to single precision blurs it.
_COARSE = 1e-5

_Site = dict[str, Any]


def from_numpyro(model: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Target:
    """The posterior of a NumPyro model, called with the arguments that follow it.

    Draws carry the names and supports of the model's latent sites, and its deterministic sites.
    `log_evidence` is that of the model; improper priors and factors leave it a constant off.

    Targets of one model on data of the same shapes share their compiled programs, unless the model
    does with its arguments what JAX cannot trace (NumPy, Python's if or int() on arrays): then each
    target is compiled anew.
    """
    if not callable(model):
        raise InputError(
            f"model is {type(model).__name__}, not a function with NumPyro statements.",
            hint="follmer.from_numpyro(model, *the model's arguments)",
        )

    def like() -> PyTree:
        latent = _latent_sites(_trace(model, args, kwargs))
        return {
            name: jnp.zeros(_bijection(site).inverse_shape(jnp.shape(site["value"])))
            for name, site in latent.items()
        }

    # Only shapes are asked for, so nothing is computed.
    free = jax.eval_shape(like)
    call = _traceable(_Call(model, args, kwargs), free)
    return Target(_LogDensity(call), free, outputs=_Outputs(call))


class _Call(eqx.Module):
    """A model and the arguments of its call; arrays among them are traced like a target's data."""

    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _LogDensity(eqx.Module):
    """The model's log density at values of its sites on the real line."""

    call: _Call

    def __call__(self, free: PyTree) -> Float[Array, ""]:
        from numpyro import handlers
        from numpyro.infer.util import potential_energy

        model, args, kwargs = self.call.model, self.call.args, self.call.kwargs
        # The seed is set anew at each call: a handler kept between calls would hold on to tracers.
        return -potential_energy(handlers.seed(model, rng_seed=0), args, kwargs, free)


class _Outputs(eqx.Module):
    """The model's latent and deterministic sites."""

    call: _Call

    def __call__(self, free: PyTree) -> PyTree:
        from numpyro import handlers
        from numpyro.infer.util import constrain_fn

        model, args, kwargs = self.call.model, self.call.args, self.call.kwargs
        seeded = handlers.seed(model, rng_seed=0)
        return constrain_fn(seeded, args, kwargs, free, return_deterministic=True)


def _traceable(call: _Call, free: PyTree) -> _Call:
    """The call with its arrays on the device, where the model can be traced without their values.

    Else the model with its arguments bound to it: they are constants of what is compiled.
    """

    def everything(call: _Call, free: PyTree) -> PyTree:
        return _LogDensity(call)(free), _Outputs(call)(free)

    try:
        args, kwargs = _in_order((call.args, call.kwargs))
        on_device = jax.tree.map(_on_device, _Call(call.model, args, kwargs))
        eqx.filter_eval_shape(everything, on_device, free)
    # Whatever stands in the way; what is wrong with the model itself will show again.
    except Exception:
        return _Call(lambda: call.model(*call.args, **call.kwargs), (), {})
    return on_device


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


def _trace(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, _Site]:
    """The model's sites at one point of their supports."""
    from numpyro import handlers

    seeded = handlers.substitute(handlers.seed(model, rng_seed=0), substitute_fn=_origin)
    try:
        return handlers.trace(seeded).get_trace(*args, **kwargs)
    except InputError:
        raise
    except Exception as error:
        error.add_note("raised by your model, called with the arguments given to from_numpyro")
        raise


def _origin(site: _Site) -> Array | None:
    """The image of 0 for a continuous latent site: improper priors cannot be drawn from."""
    if not _is_latent(site) or site["fn"].support.is_discrete:
        return None
    transform = _bijection(site)
    shape = (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())
    return transform(jnp.zeros(transform.inverse_shape(shape)))


def _is_latent(site: _Site) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _bijection(site: _Site) -> Any:
    from numpyro.distributions import biject_to

    support = site["fn"].support
    try:
        return biject_to(support)
    except NotImplementedError:
        raise InputError(
            f"NumPyro has no bijection onto {support!r}, the support of site {site['name']}.",
            cause="a support without interior, such as a sphere",
            hint="another parametrisation, e.g. numpyro.handlers.reparam with "
            "ProjectedNormalReparam",
        ) from None


def _is_point_mass(distribution: Any) -> bool:
    from numpyro.distributions import Delta

    # Plates and masks wrap the distribution they stand around.
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return isinstance(distribution, Delta)


def _latent_sites(trace: dict[str, _Site]) -> dict[str, _Site]:
    """The sites to sample; what cannot be sampled is refused by name."""
    subsampled = [
        name
        for name, site in trace.items()
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]
    ]
    if subsampled:
        raise InputError(
            f"the model subsamples its data in plate {', '.join(subsampled)}.",
            cause="numpyro.plate(…, subsample_size=…) makes the density random",
            hint="drop subsample_size; for mini-batches, follmer.Target(log_prior=, "
            "log_likelihood=, data=, like=) and fit(…, batch_size=…)",
        )
    fixed = [name for name, site in trace.items() if site["type"] == "param"]
    if fixed:
        raise InputError(
            f"the model has parameters without a prior: {', '.join(fixed)}.",
            cause="numpyro.param or numpyro.module, which only optimisation can set",
            hint="numpyro.sample with a prior, or with ImproperUniform for a flat one",
        )
    latent = {name: site for name, site in trace.items() if _is_latent(site)}
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise InputError(
            f"the model has discrete latent sites: {', '.join(discrete)}.",
            cause="only continuous unknowns can be sampled by a diffusion; or an observation was "
            "left out (obs=None)",
            hint="sum them out by hand, e.g. with MixtureSameFamily or numpyro.factor; or pass "
            "the data",
        )
    points = [name for name, site in latent.items() if _is_point_mass(site["fn"])]
    if points:
        raise InputError(
            f"the model samples from a Delta distribution: {', '.join(points)}.",
            cause="a point mass has no density",
            hint="numpyro.deterministic(name, value)",
        )
    if not latent:
        raise InputError(
            "the model has no latent sites, so there is nothing to sample.",
            cause="every numpyro.sample has obs=, or the model was conditioned on all its sites",
        )
    return latent
