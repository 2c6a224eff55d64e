"""The sites of a NumPyro model: which are sampled, and what cannot be."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from follmer.errors import InputError

Site = dict[str, Any]


def traced(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Site]:
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


def _origin(site: Site) -> Array | None:
    """The image of 0 for a continuous latent site: improper priors cannot be drawn from."""
    if not is_latent(site) or site["fn"].support.is_discrete:
        return None
    transform = bijection(site)
    shape = (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())
    return transform(jnp.zeros(transform.inverse_shape(shape)))


def is_latent(site: Site) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def bijection(site: Site) -> Any:
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


def latent_sites(trace: dict[str, Site]) -> dict[str, Site]:
    """The sites to sample; what cannot be sampled is refused by name."""
    fixed = [name for name, site in trace.items() if site["type"] == "param"]
    if fixed:
        raise InputError(
            f"the model has parameters without a prior: {', '.join(fixed)}.",
            cause="numpyro.param or numpyro.module, which only optimisation can set",
            hint="numpyro.sample with a prior, or with ImproperUniform for a flat one",
        )
    latent = {name: site for name, site in trace.items() if is_latent(site)}
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


def subsampled_plate(trace: dict[str, Site]) -> tuple[str, int] | None:
    """The plate of which the model sees some rows at a time, and all its rows; None without one."""
    found = {
        name: int(site["args"][0])
        for name, site in trace.items()
        if site["type"] == "plate" and len(site["value"]) < site["args"][0]
    }
    if not found:
        return None
    if len(found) > 1:
        raise InputError(
            f"the model subsamples more than one plate: {', '.join(found)}.",
            cause="mini-batches are rows of one table",
            hint="drop subsample_size from all but one",
        )
    ((plate, size),) = found.items()
    local = [name for name, site in trace.items() if is_latent(site) and in_plate(site, plate)]
    if local:
        raise InputError(
            f"latent sites stand inside the subsampled plate {plate}: {', '.join(local)}.",
            cause="every row has unknowns of its own, and a mini-batch leaves most of them out",
            hint="drop subsample_size; or follmer.StructuredTarget, which is made for such models",
        )
    return plate, size


def in_plate(site: Site, plate: str) -> bool:
    """Whether a site stands inside the plate."""
    return any(frame.name == plate for frame in site.get("cond_indep_stack", ()))


def is_observation(site: Site) -> bool:
    """Whether a site is observed data, and no factor."""
    auxiliary = site.get("infer", {}).get("is_auxiliary", False)
    return site["type"] == "sample" and site["is_observed"] and not auxiliary


def was_observation(site: Site) -> bool:
    """Whether a site was observed before `numpyro.handlers.uncondition` drew it anew."""
    infer = site.get("infer", {})
    return infer.get("was_observed", False) and not infer.get("is_auxiliary", False)
