"""What a user should do with the draws: one of five verdicts, and why."""

import enum
from typing import Any, NamedTuple

import numpy as np

from follmer.judging.chains import ChainDiagnostics
from follmer.judging.predictive_audit import PredictiveAudit, judge_predictions
from follmer.judging.weights import Answers, Diagnostics


class Verdict(enum.Enum):
    """What draws are good for, best first."""

    TRUSTWORTHY = "trustworthy"
    USE_WEIGHTS = "use the weights"
    GOOD_FOR_PREDICTIONS = "good for predictions"
    NO_PROOF = "no proof of quality"
    DO_NOT_USE = "do not use"

    @property
    def is_usable(self) -> bool:
        """Whether plain or weighted answers, or a network's predictions, can be relied on."""
        return self not in (Verdict.NO_PROOF, Verdict.DO_NOT_USE)


class Judgement(NamedTuple):
    """A verdict and the reason for it, with what to try."""

    verdict: Verdict
    advice: str

    @property
    def name(self) -> str:
        return self.verdict.value


class Audit(NamedTuple):
    """What draws of the target that were made otherwise, by Markov chains, say of a sampler's.

    Weights show only what the sampler reaches. `eubo`, the mean log weight of paths to the chains'
    draws, is an upper bound on ln Z, and rises where the sampler is too narrow.
    """

    eubo: float
    eubo_se: float
    mean_shift: float  # largest difference of a coordinate's means, in standard deviations
    mean_shift_noise: float  # what chance alone makes of it
    missed_modes: int = 0  # that hold mass and that the weighted draws do not visit
    rhat: float = 1.0  # how far the chains agree (nested R-hat)
    search_ended: bool = True  # whether climbs had stopped to find new modes
    second_log_evidence: float | None = None  # ln Z by tempering, where there was one
    flat: str = ""  # a coordinate along which the density does not fall off
    rests_on: str = ""  # what was looked at, in words
    num_sites: int = 1  # modes, or other places, that chains were run around


class LocalAudit(NamedTuple):
    """What single locals' weights say, where those of very many together say nothing.

    The weight of a draw is that of its globals times those of all its locals, whose small errors
    add up. Given the globals, one local's weights judge it alone.
    """

    ess_fraction: float  # given the globals, exceeded by 19 of 20 data points that were looked at
    num_rows: int  # data points that were looked at


AnyAudit = Audit | LocalAudit | PredictiveAudit


def as_audit(fields: dict[str, Any]) -> AnyAudit:
    """The audit that has these fields, as files keep them."""
    kinds: tuple[type[AnyAudit], ...] = (LocalAudit, PredictiveAudit)
    return next((one for one in kinds if fields.keys() == {*one._fields}), Audit)(**fields)


class Limits(NamedTuple):
    """The thresholds of the verdicts."""

    # Pareto tail index from which weighted answers cannot be relied on (Vehtari et al. 2024,
    # arXiv:1507.02646).
    unsound_khat: float = 0.7
    # Effective share of draws below which the weights are a few draws' alone.
    least_ess: float = 0.02
    # Effective share of draws from which weights are nearly equal, and the tail index below which
    # they have a finite variance.
    even_ess: float = 0.8
    even_khat: float = 0.5
    # Nats between the bounds on ln Z, KL(q‖p) + KL(p‖q), up to which plain draws can be used: a
    # total variation of at most .16 (Pinsker's inequality on both halves).
    close: float = 0.1
    # Nats, and three standard errors, by which the bounds may have crossed.
    crossed: float = 0.1
    # Nats between ln Z and its upper bound from which mass is missing.
    far: float = 3.0
    # Nats between two estimates of ln Z, by weights and by tempering.
    contradiction: float = 0.5
    # Differences between plain and weighted means, in standard deviations, and relative ones
    # between standard deviations, up to which plain draws can be used: two thirds of the errors
    # that `follmer bench verdicts` calls wrong.
    same_mean: float = 0.1
    same_spread: float = 0.1
    # Relative standard error of a standard deviation from which it rests on few draws: a third of
    # what `follmer bench verdicts` calls wrong.
    heavy: float = 0.05
    # Share from which, given the globals, a local's draws resemble its posterior.
    alike: float = 0.5
    # R-hat: chains agree up to here, disagree from there on (Vehtari et al. 2021,
    # arXiv:1903.08008).
    agree: float = 1.01
    disagree: float = 1.1
    # Effective draws of Markov chains: enough to believe them, too few for any use.
    enough: int = 400
    too_few: int = 10


LIMITS = Limits()


def judge(
    found: Diagnostics | ChainDiagnostics | None,
    audit: AnyAudit | None = None,
    answers: Answers | None = None,
    limits: Limits = LIMITS,
) -> Judgement:
    """A plain reading of the diagnostics; of predictions, where they were audited."""
    if isinstance(audit, PredictiveAudit):
        good, advice = judge_predictions(audit)
        return Judgement(Verdict.GOOD_FOR_PREDICTIONS if good else Verdict.DO_NOT_USE, advice)
    assert found is not None
    if isinstance(found, ChainDiagnostics):
        return _judge_chains(found, limits)
    if isinstance(audit, Audit) and audit.flat:
        return _refuse(
            f"the density does not fall off along {audit.flat}, so its integral is not finite: "
            "give that parameter a proper prior, bound it, or leave it out"
        )
    if not np.isfinite([found.elbo, found.log_evidence, found.ess_fraction]).all():
        return _refuse("some weights are not finite: run target.check(key=…)")
    if np.isnan(found.khat):
        return _refuse("there are too few draws to judge: raise num_samples")
    unsound = found.khat >= limits.unsound_khat or found.ess_fraction < limits.least_ess
    if isinstance(audit, LocalAudit):
        if unsound and audit.ess_fraction >= limits.alike:
            return Judgement(
                Verdict.NO_PROOF,
                "given the globals, single locals resemble their posterior by their own weights; "
                "those of all locals together are too many small errors to judge the globals by: "
                "compare with a fit of fewer data points",
            )
        audit = None
    if unsound and not _is_close(found, audit, limits):
        return _refuse(
            "the process has not reached the posterior: train longer (num_iterations=), use more "
            "steps (num_steps=), or precondition='explore'"
        )
    if audit is None:
        return Judgement(
            Verdict.USE_WEIGHTS,
            "weights alone cannot show what no path reaches: fit with audit=True or, where Markov "
            "chains to compare with cost too much, see whether the answers stay with another key",
        )
    doubt = _doubt(found, audit, limits)
    return _judge_plain(found, audit, answers, limits) if doubt is None else doubt


def _doubt(found: Diagnostics, audit: Audit, limits: Limits) -> Judgement | None:
    """What the audit says against the draws, weighted or not."""
    if audit.missed_modes:
        return _refuse(
            f"Markov chains found modes that no draw visits ({audit.missed_modes}): "
            "precondition='explore', or 'auto'"
        )
    gap = audit.eubo - found.log_evidence
    # Chains between modes that touch disagree about shares, which even weights have settled.
    settled = audit.num_sites > 1 and _is_even(found, limits) and _is_close(found, audit, limits)
    # What is not a number is not trusted.
    most = np.finfo(float).max if settled else 4.0 * audit.mean_shift_noise
    shifted = not audit.mean_shift <= most
    if not np.isfinite(gap) or gap - 2.0 * audit.eubo_se > limits.far or shifted:
        return _refuse(
            "Markov chains find mass that the process hardly reaches: train longer "
            "(num_iterations=) or precondition='explore'"
        )
    if not (audit.rhat <= limits.disagree or settled):
        return _unproven(
            "the Markov chains that the draws are compared with do not agree with each other: "
            "other coordinates, or a longer run (max_seconds=)"
        )
    if found.elbo - audit.eubo > limits.crossed + 3.0 * audit.eubo_se:
        return _unproven(
            "the upper bound on ln Z is below the lower one, so the Markov chains have not covered "
            "the posterior: a longer run, or precondition='explore'"
        )
    if not audit.search_ended:
        return _unproven(
            "climbs were still finding new modes when they ended, so others may be missing: a "
            "longer run (max_seconds=), or a target whose equivalent modes are ruled out"
        )
    if audit.second_log_evidence is not None:
        second = abs(audit.second_log_evidence - found.log_evidence)
        if not second - 3.0 * found.log_evidence_se <= limits.contradiction:
            return _unproven(
                f"two estimates of ln Z differ by {second:.2g} nats, by weights and by tempering: "
                "a longer run (max_seconds=)"
            )
    return None


def _judge_plain(
    found: Diagnostics, audit: Audit, answers: Answers | None, limits: Limits
) -> Judgement:
    """Whether plain draws will do where weighted ones do."""
    by_weights = "use expectation() and resample()"
    if not _is_close(found, audit, limits):
        return Judgement(
            Verdict.USE_WEIGHTS, f"plain draws are biased, weighted ones are sound: {by_weights}"
        )
    if answers is not None and not answers.spread_error <= limits.heavy:
        return Judgement(
            Verdict.USE_WEIGHTS,
            f"tails are heavy: the standard deviation of {answers.heaviest} rests on a few draws "
            f"far out (± {answers.spread_error:.0%} with so many), or does not exist. Report "
            f"quantiles; for moments take many draws and {by_weights}",
        )
    apart = answers is not None and not (
        answers.mean_gap <= limits.same_mean and answers.spread_gap <= limits.same_spread
    )
    if apart:
        return Judgement(
            Verdict.USE_WEIGHTS,
            f"plain draws are close, but have other moments than weighted ones: {by_weights}",
        )
    return Judgement(
        Verdict.TRUSTWORTHY, "the draws can be used as they are; the weights change little"
    )


def _is_even(found: Diagnostics, limits: Limits) -> bool:
    """Whether the weights are nearly equal, their largest ones included."""
    return found.ess_fraction >= limits.even_ess and found.khat < limits.even_khat


def _is_close(found: Diagnostics, audit: Audit | None, limits: Limits) -> bool:
    """Whether the bounds on ln Z are so close that plain draws can be used."""
    return audit is not None and audit.eubo - found.elbo <= limits.close


def _judge_chains(found: ChainDiagnostics, limits: Limits) -> Judgement:
    if found.num_draws == 1:
        return Judgement(
            Verdict.NO_PROOF,
            "one point tells nothing of the posterior's width: follmer.fit for draws with weights",
        )
    longer = "run longer (num_iterations= or num_samples=)"
    if found.num_chains > 1 and not found.rhat < limits.disagree:
        return _refuse(f"the chains disagree: {longer}, with more burn-in")
    effective = found.ess_fraction * found.num_draws
    if not effective >= limits.too_few:
        return _refuse(f"the draws repeat each other: {longer}, or with larger steps")
    if not found.exact:
        return Judgement(
            Verdict.NO_PROOF,
            "the steps are not corrected, and no diagnostic shows their bias: see whether the "
            "moments stay with a smaller step_size; follmer.fit for draws with weights",
        )
    if found.num_chains == 1:
        return Judgement(Verdict.NO_PROOF, "one chain has none to agree with: num_chains=4")
    if found.divergences:
        return Judgement(
            Verdict.NO_PROOF,
            f"{found.divergences} trajectories diverged, so parts of the posterior may be missing: "
            "other coordinates, or a higher target_acceptance",
        )
    if found.rhat > limits.agree or effective < limits.enough:
        return Judgement(Verdict.NO_PROOF, f"the chains nearly agree: {longer}")
    return Judgement(
        Verdict.TRUSTWORTHY, "the chains agree with each other, in what they have found"
    )


def _refuse(advice: str) -> Judgement:
    return Judgement(Verdict.DO_NOT_USE, advice)


def _unproven(advice: str) -> Judgement:
    return Judgement(Verdict.NO_PROOF, advice)
