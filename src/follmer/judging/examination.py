"""A posterior judged once, on enough draws: what is found is stored with it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.judging.audit import audited
from follmer.judging.chains import ChainDiagnostics
from follmer.judging.predictions import audit_predictions
from follmer.judging.verdict import Audit, judge
from follmer.judging.weights import Diagnostics, compare_answers
from follmer.mcmc.population import Population
from follmer.posterior.posterior import Posterior
from follmer.targets import as_target
from follmer.tools.keys import named_key, named_keys

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
