"""A posterior judged once, on one set of draws, beside those of Markov chains.

The chains give an upper bound on the evidence, shifts of means, and modes that no draw visits.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.judging.chains import ChainDiagnostics
from follmer.judging.predictions import audit_predictions
from follmer.judging.verdict import Audit, LocalAudit, judge
from follmer.judging.weights import (
    Diagnostics,
    compare_answers,
    ess_fraction,
    pareto_smooth,
    weighted_moments,
)
from follmer.mcmc.chains import GRADIENTS_PER_CALL
from follmer.mcmc.population import Population, population_from
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import (
    DRAWS_AT_ONCE,
    Flow,
    MixtureFlow,
    Weighted,
    log_weights_to,
)
from follmer.posterior.structured import StructuredFlow, single_local_log_weights
from follmer.targets import AbstractTarget, Density, as_target
from follmer.tools.keys import generator, key_rows, named_key, named_keys, normals

# Draws of the population that a sampler's paths are led to.
_NUM_ENDS = 1024
# The share of the mass from which a mode is missed, where the draws have less than a quarter of it.
_SLIVER, _QUARTER = 0.05, 0.25
# Coordinates up to which chains are run for an audit; more locals are judged one by one.
_MAX_DIM, _MAX_WITH_LOCALS = 2000, 400
# Operations that the chains of an audit may take: some seconds.
_BUDGET = 1e11
_LEAST_CALLS, _MOST_CALLS = 2, 12
# The share of data points that may be worse than what is said of them.
_FEW = 0.05
# Points along a line, so near to each other that only rounding bends it, and the noise of the log
# density, in nats, from which weights suffer.
_LINE, _STEP, _NOISY = 8, 1e-3, 0.05
# Scalars of all locals together, up to which plain and weighted answers are compared.
_MOST_OUTPUTS = 2000


class Examination(NamedTuple):
    """The posterior with its judgement and audit, and the figures behind them."""

    posterior: Posterior
    found: Diagnostics | ChainDiagnostics

    @property
    def elbo(self) -> float:
        """nan where there are no weights."""
        return getattr(self.found, "elbo", float("nan"))

    @property
    def gap(self) -> float:
        """Nats between the bounds on ln Z; infinite where there is no upper one."""
        gap = getattr(self.found, "eubo", float("nan")) - self.elbo
        return gap if np.isfinite(gap) else float("inf")


def examined(
    posterior: Posterior,
    *,
    key: PRNGKeyArray,
    audit: bool = True,
    population: Population | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Examination:
    """The posterior, audited beside a population of Markov chains, and judged.

    `facts` are fields of the audit that a survey of the target knows.
    """
    draw_key, audit_key = named_keys(key, "draws", "audit")
    sampler = posterior.sampler
    if not sampler.weighs:
        if audit:
            posterior = predictions_audited(posterior, audit_key)
        found = posterior.diagnostics(key=draw_key)
        return Examination(posterior.with_judgement(judge(found, posterior.audit)), found)
    x, log_weights = posterior.flat_sample(sampler.draws_judged, key=draw_key)
    if audit:
        posterior = audited(posterior, key=audit_key, draws=(x, log_weights), population=population)
        if isinstance(posterior.audit, Audit) and facts:
            posterior = posterior.with_audit(posterior.audit._replace(**facts))
    found = posterior.diagnosed(log_weights)
    logs, answers = np.asarray(log_weights, float), None
    if np.isfinite(logs).all() and posterior.target.dim <= _MOST_OUTPUTS:
        answers = compare_answers(posterior.outputs(x), logs)
    judged = judge(found, posterior.audit, answers)
    return Examination(posterior.with_judgement(judged), found)


def predictions_audited(posterior: Posterior, key: PRNGKeyArray) -> Posterior:
    """The posterior of chains with what their predictions say, where it can predict."""
    target = posterior.target
    if getattr(target, "predictive", None) is None or "x" not in (target.data or {}):
        return posterior
    chains: Any = posterior.sampler
    found = audit_predictions(
        as_target(target), chains.draws, named_key(key, "predictions"), chains.shares
    )
    return posterior.with_audit(found)


def audited(
    posterior: Posterior,
    *,
    key: PRNGKeyArray,
    draws: Weighted | None = None,
    population: Population | None = None,
) -> Posterior:
    """The same posterior with an audit: its draws beside those of a population of Markov chains.

    `draws` are flat ones of the posterior, with log weights, where there are some already. Without
    a population, chains start from the posterior's own weighted draws. Where they would
    cost too much there is no audit; of very many locals, some are judged one by one instead. A note
    is added where single precision is too coarse for the density.
    """
    sampler = posterior.sampler
    draw_key, chain_key, end_key = named_keys(key, "draws", "chains", "ends")
    target = sampler.coordinates(posterior.target)
    if isinstance(sampler, StructuredFlow) and target.dim > _MAX_WITH_LOCALS:
        logs = single_local_log_weights(sampler, chain_key)
        shares = np.apply_along_axis(ess_fraction, 1, logs).mean(axis=1)
        return posterior.with_audit(LocalAudit(float(np.quantile(shares, _FEW)), len(shares)))
    if not isinstance(sampler, Flow | MixtureFlow | StructuredFlow):
        return posterior
    if draws is None:
        draws = posterior.flat_sample(sampler.draws_judged, key=draw_key)
    x, log_weights = (np.asarray(part, float) for part in draws)
    # From the draws' coordinates to those of the posterior's target, which may be whitened itself;
    # of a structured target the map is that of the globals alone.
    mapped = posterior.target.affine is None and not target.has_locals
    affine = target.affine if mapped else None
    # In the target's own coordinates: its program is compiled already.
    own = x if affine is None else affine.rows(x)
    note = precision_note(posterior.target, own, key)
    if note is not None:
        posterior = posterior.with_notes(note)
    if not np.isfinite(log_weights).all():
        return posterior
    # Chains from the posterior's own draws are run in their coordinates, others in the target's.
    if population is None:
        affine, own = None, x
        population = _own_population(target, x, log_weights, chain_key)
    if population is None:
        return posterior
    ends = population.draws(_NUM_ENDS, generator(end_key, "population"), held_out=True)
    ends = ends if affine is None else affine.inverse_rows(ends)
    bridged = _bridged(sampler, np.asarray(ends, target.dtype), end_key)
    weights = np.exp(pareto_smooth(log_weights)[0])
    found = _compared(x, weights, ends, bridged, population)
    missed = _missed_modes(own, weights / weights.sum(), population)
    return posterior.with_audit(found._replace(missed_modes=missed))


def _own_population(
    target: AbstractTarget, x: np.ndarray, log_weights: np.ndarray, key: PRNGKeyArray
) -> Population | None:
    """Chains from weighted draws, in their coordinates; None where they cost too much."""
    density = Density(target)
    calls = _BUDGET / (GRADIENTS_PER_CALL * max(target.gradient_cost, 1.0))
    if target.dim > _MAX_DIM or calls < _LEAST_CALLS:
        return None
    weights = np.exp(pareto_smooth(log_weights)[0])
    chosen = generator(key, "starts").choice(len(x), len(x), p=weights / weights.sum())
    return population_from(density, x[chosen], key, max_calls=int(min(calls, _MOST_CALLS)))


def _missed_modes(x: np.ndarray, weights: np.ndarray, population: Population) -> int:
    """Sites of the population with much more mass than the weighted draws have there."""
    if len(population.sites) == 1:
        return 0
    logs = np.stack([site.mixture.log_density(x) for site in population.sites])
    logs += np.log(population.masses)[:, None]
    own = np.exp(logs - np.logaddexp.reduce(logs, axis=0)) @ weights
    held = population.masses > _SLIVER
    return int(np.sum(held & (own < _QUARTER * population.masses)))


def _bridged(
    sampler: Flow | MixtureFlow | StructuredFlow,
    ends: Float[np.ndarray, "ends dim"],
    key: PRNGKeyArray,
) -> Float[np.ndarray, " ends"]:
    keys = key_rows(named_key(key, "paths"), len(ends))
    blocks = range(0, len(ends), DRAWS_AT_ONCE)
    parts = [
        log_weights_to(sampler, ends[i : i + DRAWS_AT_ONCE], keys[i : i + DRAWS_AT_ONCE])
        for i in blocks
    ]
    return np.concatenate([np.asarray(part, float) for part in parts])


def _compared(
    x: np.ndarray,
    weights: np.ndarray,
    ends: np.ndarray,
    bridged: np.ndarray,
    population: Population,
) -> Audit:
    mean, covariance = weighted_moments(np.asarray(x, float), weights)
    sd = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = np.abs(ends.mean(axis=0) - mean) / sd
    effective = 1.0 / np.sum(weights**2)
    # The largest of many standard normals is about √(2 ln n).
    largest = np.sqrt(1.0 + 2.0 * np.log(x.shape[1]))
    return Audit(
        eubo=float(bridged.mean()),
        eubo_se=float(bridged.std() / np.sqrt(len(bridged))),
        mean_shift=float(np.nan_to_num(shifts, nan=np.inf).max()),
        mean_shift_noise=float(largest * np.sqrt(1.0 / population.effective + 1.0 / effective)),
        rhat=population.rhat,
        num_sites=len(population.sites),
    )


def precision_note(target: AbstractTarget, x: np.ndarray, key: PRNGKeyArray) -> str | None:
    """A warning where single precision blurs the log density at draws of a whitened target."""
    if target.dtype != jnp.float32 or target.has_locals:
        return None
    noise = float(np.median(rounding_noise(target, x, key)))
    if not noise > _NOISY:
        return None
    return (
        f"single precision blurs the log density by about {noise:.2g} nats, which limits training "
        "and weights: try jax.config.update('jax_enable_x64', True) before anything else"
    )


def rounding_noise(
    target: AbstractTarget, x: Float[Array | np.ndarray, "draws dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " lines"]:
    """The standard deviation of the log density's rounding along lines from the first draws.

    By third differences: all that is smooth is gone.
    """
    direction = normals(key, "directions", x.shape) * np.std(x, axis=0)
    direction /= np.sqrt(x.shape[1])
    steps = _STEP * np.arange(_LINE)
    direction, x = direction[:_LINE], np.asarray(x, float)[:_LINE]
    points = x[:, None] + steps[:, None] * direction[:, None]
    values = Density(target).values(points.reshape(-1, x.shape[1])).reshape(points.shape[:2])
    # The weights 1, −3, 3, −1 of a third difference have squares that sum to 20.
    with np.errstate(invalid="ignore"):
        return np.diff(values, 3, axis=1).std(axis=1) / np.sqrt(20.0)
