"""A NumPyro model as a target."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError
from follmer.targets import Target

_Site = dict[str, Any]


def from_numpyro(model: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Target:
    """The posterior of a NumPyro model, called with the arguments that follow it.

    Draws carry the names and supports of the model's latent sites, and its deterministic sites.
    `log_evidence` is that of the model; improper priors and factors leave it a constant off.
    """
    if not callable(model):
        raise InputError(
            f"model is {type(model).__name__}, not a function with NumPyro statements.",
            hint="follmer.from_numpyro(model, *the model's arguments)",
        )
    from numpyro import handlers
    from numpyro.infer.util import constrain_fn, potential_energy

    # The seed is set anew at each call: a handler kept between calls would hold on to tracers.
    def log_density(free: PyTree) -> Float[Array, ""]:
        return -potential_energy(handlers.seed(model, rng_seed=0), args, kwargs, free)

    def outputs(free: PyTree) -> PyTree:
        seeded = handlers.seed(model, rng_seed=0)
        return constrain_fn(seeded, args, kwargs, free, return_deterministic=True)

    def like() -> PyTree:
        latent = _latent_sites(_trace(model, args, kwargs))
        return {
            name: jnp.zeros(_bijection(site).inverse_shape(jnp.shape(site["value"])))
            for name, site in latent.items()
        }

    # Only shapes are asked for, so nothing is computed.
    return Target(log_density, jax.eval_shape(like), outputs=outputs)


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
