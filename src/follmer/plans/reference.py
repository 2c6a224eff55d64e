"""A plan from another process: that of the prior, fitted before any data came."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.errors import InputError
from follmer.judging import ess_fraction
from follmer.paths import PriorProcess, check_has_data
from follmer.plans.plan import Plan
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import DRAWS_AT_ONCE, Flow
from follmer.targets import AbstractTarget, Target, as_target
from follmer.tools.programs import compiled

# Nats, and share of the log density's size, by which two equal priors may differ.
_ROUNDING, _RELATIVE_ROUNDING = 1e-2, 1e-4


def by_reference(target: Target, reference: Any, key: PRNGKeyArray) -> Plan:
    """The coordinates and settings of the prior's process, which training then steers away from."""
    flow = _checked(target, reference)
    process = PriorProcess(flow)
    whitened = target.whitened(flow.process.target.affine)
    x, log_weights = reference.flat_sample(DRAWS_AT_ONCE, key=key)
    _check_prior(whitened, flow.process.target, x)
    why = (
        "steered away from the prior's process, which has an ESS of "
        f"{ess_fraction(np.asarray(log_weights, float)):.0%} as draws of the prior"
    )
    return Plan("reference", whitened, process.options | {"reference": process}, why)


def _checked(target: Target, reference: Any) -> Flow:
    hint = "reference=follmer.prior_process(target, key=key)"
    if not isinstance(reference, Posterior) or not isinstance(reference.sampler, Flow):
        kind = type(getattr(reference, "sampler", reference)).__name__
        raise InputError(f"reference is {kind}, not the trained process of a prior.", hint=hint)
    check_has_data(target.num_data)
    if reference.target.num_data is not None:
        raise InputError(
            "the reference was itself fitted to data.",
            cause="a posterior was passed where the process of the prior is wanted",
            hint=hint,
        )
    spaces = [one.describe() for one in (reference.target, target)]
    if spaces[0] != spaces[1] or reference.target.dtype != target.dtype:
        raise InputError(
            f"the reference has the parameters {spaces[0]} of {reference.target.dtype}, the target "
            f"{spaces[1]} of {target.dtype}.",
            cause="it was made for another `like`, other constraints or another precision",
            hint=hint,
        )
    return reference.sampler


def _check_prior(
    target: AbstractTarget, other: AbstractTarget, x: Float[Array, "draws dim"]
) -> None:
    """The two log priors differ by a constant at the given points."""
    ours, theirs = (np.asarray(_log_priors(as_target(one), x), float) for one in (target, other))
    if not np.ptp(ours - theirs) <= _ROUNDING + _RELATIVE_ROUNDING * np.ptp(theirs):
        raise InputError(
            "the reference is the process of another prior than the target's.",
            cause="the prior was changed after its process had been made",
            hint="reference=follmer.prior_process(target, key=key)",
        )


@compiled
def _log_priors(target: Target, x: Float[Array, "draws dim"]) -> Float[Array, " draws"]:
    return jax.vmap(target.log_prior_density)(x)
