"""The rungs of the ladder: strategies of one signature, from a survey of the target to a plan."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError, closest
from follmer.mcmc.chains import NUM_GROUPS
from follmer.plans.ensemble import ensemble
from follmer.plans.mean_field import mean_field, prior_widths
from follmer.plans.mixture import UnreachableError, mixture
from follmer.plans.plan import Plan
from follmer.plans.structured import batch_settings, structured
from follmer.plans.survey import Survey
from follmer.posterior.samplers import StoredDraws
from follmer.process import process_options
from follmer.targets import AbstractTarget, Affine
from follmer.targets.affine import diagonal, from_covariance
from follmer.tools.keys import generator, named_key

Rung = Callable[[Survey, PRNGKeyArray], Plan]

# Draws that a flow of several modes learns from.
_NUM_DRAWS = 4096


def flow(survey: Survey, key: PRNGKeyArray) -> Plan:
    """A flow in the population's coordinates: from one mode by its own paths, else by the draws."""
    target, population = survey.target, survey.population
    if len(survey.modes.x) == 0:
        return Plan("flow", target, {}, "no mode was found: own coordinates are used")
    affine = survey.affine
    several = population is not None and len(population.sites[0].mixture.shares) > 1
    if population is not None and (several or len(population.sites) > 1):
        draws = population.draws(_NUM_DRAWS, generator(key, "draws"))
        learned = jax.device_put(np.asarray(affine.inverse_rows(draws), target.dtype))
        why = f"{survey.modes}: learned from draws of chains"
        return Plan("flow", target.whitened(affine), {"learning_rate": 5e-3}, why, None, learned)
    settings = survey.policy.flow_settings(target.dim, target.gradient_cost)
    how = "curvature" if population is None else "chains"
    return Plan("flow", target.whitened(affine), settings, f"{survey.modes}: whitened by {how}")


def chains(survey: Survey, key: PRNGKeyArray) -> Plan:
    """The draws of the population's chains themselves, stored, where one site holds all mass."""
    population, facts = survey.needed_population, survey.facts
    alone = population is not None and len(population.sites) == 1 and "tempered" not in vars(survey)
    if population is None or not alone or not facts.get("search_ended") or survey.flat:
        raise UnreachableError(
            "no single set of chains has seen the whole of this target.",
            cause="several modes, a search for modes that was cut short, or expensive gradients",
            hint="precondition='auto', or follmer.nuts(target, key=key)",
        )
    draws = population.sites[0].draws
    # Chains that share a start follow each other: between such groups R-hat is nested.
    groups = draws.transpose(1, 0, 2).reshape(NUM_GROUPS, -1, draws.shape[2])
    sampler = StoredDraws(groups.astype(survey.target.dtype), "chains", exact=True)
    why = f"{survey.modes}: the draws of {population.num_chains} chains, without weights"
    return Plan("chains", survey.target, {}, why, sampler)


def explore(survey: Survey, key: PRNGKeyArray) -> Plan:
    """A flow that learns from tempered particles, whatever the number of modes."""
    tempered = survey.tempered
    affine = _covering(tempered.particles, survey.target.dtype)
    draws = jax.device_put(np.asarray(affine.inverse_rows(tempered.particles), survey.target.dtype))
    why = (
        f"explored by tempered SMC ({len(tempered.particles)} particles, "
        f"{tempered.temperatures} temperatures"
    )
    why += ")" if tempered.reached == 1.0 else f", {tempered.reached:.0%} of the way)"
    settings = {"learning_rate": 5e-3}
    return Plan("explore", survey.target.whitened(affine), settings, why, None, draws)


def identity(survey: Survey, key: PRNGKeyArray) -> Plan:
    """The target's own coordinates."""
    settings = batch_settings(survey.target) if survey.target.has_locals else {}
    return Plan("identity", survey.target, settings, "")


def prior(survey: Survey, key: PRNGKeyArray) -> Plan:
    """Scaled by the prior, or by the curvature at 0 where the target has no prior of its own."""
    zero = np.zeros(survey.target.dim)
    widths = prior_widths(survey.target, named_key(key, "widths"))
    affine = diagonal(zero, widths, survey.target.dtype)
    why = "scaled coordinate by coordinate by the prior"
    return Plan("prior", survey.target.whitened(affine), {}, why)


def scaled(survey: Survey, key: PRNGKeyArray) -> Plan:
    """Scaled coordinate by coordinate around the best mode."""
    found = _gaussian(survey)
    widths = 1.0 / np.sqrt(np.diag(np.linalg.inv(found.covariances[0])))
    affine = diagonal(found.means[0], widths, survey.target.dtype)
    return Plan("diagonal", survey.target.whitened(affine), {}, "scaled coordinate by coordinate")


def laplace(survey: Survey, key: PRNGKeyArray) -> Plan:
    """Whitened by the curvature at the best mode; the network is left with what is not Gaussian."""
    found, target = _gaussian(survey), survey.target
    affine = from_covariance(found.means[0], found.covariances[0], target.dtype)
    settings = survey.policy.flow_settings(target.dim, target.gradient_cost)
    return Plan("laplace", target.whitened(affine), settings, f"{survey.modes}: whitened there")


RUNGS: dict[str, Rung] = {
    "mixture": mixture,
    "flow": flow,
    "chains": chains,
    "explore": explore,
    "identity": identity,
    "prior": prior,
    "diagonal": scaled,
    "laplace": laplace,
    "mean_field": mean_field,
    "ensemble": ensemble,
    "structured": structured,
}
# What may be asked for by name, for targets without and with locals.
_NAMED = (
    *("auto", "mixture", "flow", "chains", "ensemble", "explore"),
    *("identity", "prior", "diagonal", "laplace"),
)
_NAMED_WITH_LOCALS = ("auto", "identity", "laplace")
# Options that describe a process to be trained: a mixture in closed form cannot honour them.
_OF_A_TRAINED_PROCESS = frozenset(["objective", *process_options()])

# Options that an ensemble of chains can honour: the first leave the choice of it open.
_OF_ANY_SAMPLER = frozenset(["batch_size"])
_OF_AN_ENSEMBLE = frozenset([*_OF_ANY_SAMPLER, "num_iterations"])


def ladder(precondition: Any, survey: Survey, options: Mapping[str, Any]) -> list[tuple[str, Rung]]:
    """The rungs to try, in turn; an error where none can be what was asked for."""
    target = survey.target
    if isinstance(precondition, Affine):
        return [("given", _given(precondition, survey))]
    known = _NAMED_WITH_LOCALS if target.has_locals else _NAMED
    if precondition not in known:
        what = "is not for structured targets" if target.has_locals else "is unknown"
        raise InputError(
            f"precondition={precondition!r} {what}.",
            hint=f"{closest(str(precondition), known)}; or a follmer.Affine",
        )
    if precondition == "mixture" and not _OF_A_TRAINED_PROCESS.isdisjoint(options):
        given = ", ".join(sorted(_OF_A_TRAINED_PROCESS & options.keys()))
        raise InputError(
            f"precondition='mixture' cannot honour {given}.",
            cause="a mixture's process is known in closed form: nothing is trained",
            hint="precondition='flow', or leave these options out",
        )
    if target.has_locals:
        names = ["identity" if precondition == "identity" else "structured"]
    elif is_ensemble(precondition, target, options):
        _check_of_ensemble(options)
        chosen = functools.partial(ensemble, **options)
        return [("ensemble", chosen)]
    elif precondition != "auto":
        names = [precondition]
    elif target.dim > survey.policy.max_dense:
        names = ["mean_field"]
    else:
        names = ["flow"]
        if _OF_A_TRAINED_PROCESS.isdisjoint(options):
            last = ["chains", "flow"] if survey.chains_come_first else ["flow", "chains"]
            names = ["mixture", *last]
    return [(name, RUNGS[name]) for name in names]


def is_ensemble(precondition: str, target: AbstractTarget, options: Mapping[str, Any]) -> bool:
    """Whether the ladder is the ensemble alone.

    It was asked for, or modes are countless: hidden layers, and nothing set that only training can
    honour.
    """
    if precondition != "auto" or target.has_locals:
        return precondition == "ensemble"
    predictive = getattr(target, "predictive", None)
    hidden = predictive is not None and predictive.has_hidden_layers
    return hidden and options.keys() <= _OF_ANY_SAMPLER


def _check_of_ensemble(options: Mapping[str, Any]) -> None:
    if given := ", ".join(sorted(options.keys() - _OF_AN_ENSEMBLE)):
        raise InputError(
            f"precondition='ensemble' cannot honour {given}.",
            cause="an ensemble stores the draws of chains: no process is trained",
            hint="batch_size= and num_iterations= alone, or another precondition",
        )


def _given(affine: Affine, survey: Survey) -> Rung:
    dim = survey.target.layout.dim
    if affine.mean.shape != (dim,):
        raise InputError(
            f"the affine map is for {len(affine.mean)} coordinates; the target has {dim}."
        )

    def given(survey: Survey, key: PRNGKeyArray) -> Plan:
        plan = structured(survey, key, affine) if survey.target.has_locals else None
        why = "whitened by the given affine map"
        return plan or Plan("given", survey.target.whitened(affine), {}, why)

    return given


def _gaussian(survey: Survey) -> Any:
    if len(survey.modes.x) == 0:
        raise InputError(
            "no mode of the density was found: climbs met values that are not finite.",
            hint="target.check(key=…), or precondition='identity'",
        )
    return survey.gaussian


def _covering(draws: np.ndarray, dtype: Any) -> Affine:
    """Whitening by the draws' moments, wider where tails are heavier than a normal's."""
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
    farthest = np.abs(draws - mean).max(axis=0) / np.sqrt(np.diag(covariance))
    # The largest of n standard normals is about √(2 ln n).
    excess = np.maximum(farthest / np.sqrt(2.0 * np.log(len(draws))), 1.0)
    return from_covariance(mean, covariance * np.outer(excess, excess), dtype)
