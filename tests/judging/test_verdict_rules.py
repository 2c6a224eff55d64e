"""Every branch of the verdict, on made-up evidence."""

import re

import numpy as np
import pytest

from follmer.judging import (
    Answers,
    Audit,
    ChainDiagnostics,
    Diagnostics,
    LocalAudit,
    Verdict,
    as_audit,
    judge,
)
from follmer.judging.verdict import LIMITS

WEIGHTS = Diagnostics(-0.05, 0.0, 0.01, 0.9, 0.3)
AUDIT = Audit(eubo=0.05, eubo_se=0.01, mean_shift=0.1, mean_shift_noise=0.1)
LOCALS = LocalAudit(0.9, 10)
CHAINS = ChainDiagnostics(4, 4000, 1.001, 0.5, True)
NAN, INF = np.nan, np.inf
# Of the bounds on ln Z: farther from each other than plain draws can be used for.
APART = {"elbo": -0.06}

TRUSTWORTHY, USE_WEIGHTS, GOOD_FOR_PREDICTIONS, NO_PROOF, DO_NOT_USE = Verdict


# The evidence, the audit beside it, the verdict, and words of the advice.
BY_WEIGHTS = {
    "elbo nan": ({"elbo": NAN}, DO_NOT_USE, "not finite.*target.check"),
    "elbo -inf": ({"elbo": -INF}, DO_NOT_USE, "not finite.*target.check"),
    "evidence inf": ({"log_evidence": INF}, DO_NOT_USE, "not finite.*target.check"),
    "ess nan": ({"ess_fraction": NAN}, DO_NOT_USE, "not finite.*target.check"),
    "no tail to fit": ({"khat": NAN}, DO_NOT_USE, "too few draws.*num_samples"),
    "heavy tail": ({"khat": 0.7, **APART}, DO_NOT_USE, "num_iterations.*num_steps.*explore"),
    "endless tail": ({"khat": INF, **APART}, DO_NOT_USE, "num_iterations"),
    "few effective": ({"ess_fraction": 0.019, **APART}, DO_NOT_USE, "num_iterations"),
    "just no heavy tail": ({"khat": 0.69, **APART}, USE_WEIGHTS, "expectation.*resample"),
    "just enough effective": ({"ess_fraction": 0.02, **APART}, USE_WEIGHTS, "expectation"),
    "heavy tail between close bounds": ({"khat": 0.8}, TRUSTWORTHY, "used as they are"),
    "sound": ({}, TRUSTWORTHY, "used as they are"),
    "no tail": ({"khat": -INF}, TRUSTWORTHY, "used as they are"),
    "bounds just close": ({"elbo": -0.049}, TRUSTWORTHY, "used as they are"),
    "bounds apart": ({"elbo": -0.051}, USE_WEIGHTS, "expectation.*resample"),
}


@pytest.mark.parametrize(("change", "verdict", "advice"), BY_WEIGHTS.values(), ids=BY_WEIGHTS)
def test_weights_beside_a_good_audit(change, verdict, advice):
    judged = judge(WEIGHTS._replace(**change), AUDIT)
    assert judged.verdict is verdict
    assert re.search(advice, judged.advice)


BY_AUDIT = {
    "close": ({}, TRUSTWORTHY, "used as they are"),
    "crossed within noise": ({"eubo": -0.17}, TRUSTWORTHY, "used as they are"),
    "crossed": ({"eubo": -0.19}, NO_PROOF, "have not covered"),
    "bounds apart": ({"eubo": 0.3}, USE_WEIGHTS, "expectation.*resample"),
    "far within noise": ({"eubo": 3.5, "eubo_se": 0.3}, USE_WEIGHTS, "expectation.*resample"),
    "far": ({"eubo": 3.5, "eubo_se": 0.2}, DO_NOT_USE, "hardly reaches.*num_iterations"),
    "bound inf": ({"eubo": INF}, DO_NOT_USE, "hardly reaches"),
    "bound nan": ({"eubo": NAN}, DO_NOT_USE, "hardly reaches"),
    "shifted": ({"mean_shift": 0.41}, DO_NOT_USE, "hardly reaches"),
    "shifted by chance": ({"mean_shift": 0.39}, TRUSTWORTHY, "used as they are"),
    "shift unknown": ({"mean_shift": NAN}, DO_NOT_USE, "hardly reaches"),
    "shares of modes": ({"mean_shift": 0.5, "num_sites": 2}, TRUSTWORTHY, "as they are"),
    "shares unknown": ({"mean_shift": NAN, "num_sites": 2}, DO_NOT_USE, "hardly reaches"),
    "shares, bounds apart": (
        {"mean_shift": 0.5, "num_sites": 2, "eubo": 0.06},
        DO_NOT_USE,
        "hardly reaches",
    ),
    "missed mode": ({"missed_modes": 2}, DO_NOT_USE, r"modes that no draw visits \(2\).*explore"),
    "chains disagree": ({"rhat": 1.11}, NO_PROOF, "do not agree with each other"),
    "chains between modes disagree": ({"rhat": 1.2, "num_sites": 2}, TRUSTWORTHY, "as they are"),
    "and bounds are apart": ({"rhat": 1.2, "num_sites": 2, "eubo": 0.06}, NO_PROOF, "not agree"),
    "chains stand still": ({"rhat": INF}, NO_PROOF, "do not agree with each other"),
    "agreement unknown": ({"rhat": NAN}, NO_PROOF, "do not agree with each other"),
    "chains agree": ({"rhat": 1.1}, TRUSTWORTHY, "used as they are"),
    "search cut short": ({"search_ended": False}, NO_PROOF, "still finding new modes"),
    "second evidence agrees": ({"second_log_evidence": 0.5}, TRUSTWORTHY, "used as they are"),
    "second evidence": ({"second_log_evidence": 0.54}, NO_PROOF, "two estimates.*max_seconds"),
    "second unknown": ({"second_log_evidence": NAN}, NO_PROOF, "two estimates"),
    "flat": ({"flat": "b[2]"}, DO_NOT_USE, r"does not fall off along b\[2\].*proper prior"),
    "disagree on what is far": ({"rhat": 2.0, "eubo": 9.0}, DO_NOT_USE, "hardly reaches"),
}


@pytest.mark.parametrize(("change", "verdict", "advice"), BY_AUDIT.values(), ids=BY_AUDIT)
def test_an_audit_is_heard(change, verdict, advice):
    judged = judge(WEIGHTS, AUDIT._replace(**change))
    assert judged.verdict is verdict
    assert re.search(advice, judged.advice)


@pytest.mark.parametrize(
    "change", [{"missed_modes": 1}, {"mean_shift": 1.0}, {"rhat": 2.0, "num_sites": 2}]
)
def test_close_bounds_do_not_mend_unsound_weights_beside_a_bad_audit(change):
    judged = judge(WEIGHTS._replace(khat=0.8), AUDIT._replace(**change))
    assert not judged.verdict.is_usable


def test_without_an_audit_nothing_is_better_than_weights():
    judged = judge(WEIGHTS)
    assert judged.verdict is USE_WEIGHTS
    assert "audit=True" in judged.advice
    assert judge(WEIGHTS._replace(khat=NAN)).verdict is DO_NOT_USE


BY_LOCALS = {
    "heavy tail": ({"khat": 2.0}, 0.9, NO_PROOF, "fewer data points"),
    "few effective": ({"ess_fraction": 0.01}, 0.9, NO_PROOF, "fewer data points"),
    "locals just alike": ({"khat": 2.0}, 0.5, NO_PROOF, "fewer data points"),
    "locals unlike": ({"khat": 2.0}, 0.49, DO_NOT_USE, "num_iterations"),
    "locals unknown": ({"khat": 2.0}, NAN, DO_NOT_USE, "num_iterations"),
    "not finite": ({"elbo": NAN}, 0.9, DO_NOT_USE, "not finite"),
    "sound by themselves": ({}, 0.9, USE_WEIGHTS, "audit=True"),
}


@pytest.mark.parametrize(
    ("change", "share", "verdict", "advice"), BY_LOCALS.values(), ids=BY_LOCALS
)
def test_single_locals_are_heard_where_joint_weights_fail(change, share, verdict, advice):
    judged = judge(WEIGHTS._replace(**change), LOCALS._replace(ess_fraction=share))
    assert judged.verdict is verdict
    assert re.search(advice, judged.advice)


BY_CHAINS = {
    "agree": ({}, TRUSTWORTHY, "agree"),
    "nearly agree": ({"rhat": 1.011}, NO_PROOF, "nearly agree"),
    "few draws": ({"ess_fraction": 0.09}, NO_PROOF, "nearly agree"),
    "diverged": ({"divergences": 1}, NO_PROOF, "1 trajectories diverged"),
    "one chain": ({"num_chains": 1, "rhat": NAN}, NO_PROOF, "num_chains"),
    "disagree": ({"rhat": 1.1}, DO_NOT_USE, "disagree"),
    "agreement unknown": ({"rhat": NAN}, DO_NOT_USE, "disagree"),
    "repeat": ({"ess_fraction": 0.002}, DO_NOT_USE, "repeat"),
    "ess unknown": ({"ess_fraction": NAN}, DO_NOT_USE, "repeat"),
    "not exact": ({"exact": False}, NO_PROOF, "not corrected"),
    "one, not exact": ({"exact": False, "num_chains": 1, "rhat": NAN}, NO_PROOF, "step_size"),
    "not exact, disagree": ({"exact": False, "rhat": 1.2}, DO_NOT_USE, "disagree"),
    "one point": ({"num_chains": 1, "num_draws": 1}, NO_PROOF, "one point"),
}


@pytest.mark.parametrize(("change", "verdict", "advice"), BY_CHAINS.values(), ids=BY_CHAINS)
def test_chains(change, verdict, advice):
    judged = judge(CHAINS._replace(**change))
    assert judged.verdict is verdict
    assert advice in judged.advice


ANSWERS = Answers(0.01, 0.01, 0.01, "x")
BY_ANSWERS = {
    "alike": ({}, TRUSTWORTHY, "used as they are"),
    "just the same mean": ({"mean_gap": 0.1}, TRUSTWORTHY, "used as they are"),
    "another mean": ({"mean_gap": 0.11}, USE_WEIGHTS, "other moments.*expectation"),
    "another spread": ({"spread_gap": 0.11}, USE_WEIGHTS, "other moments.*expectation"),
    "heavy tails": ({"spread_error": 0.06}, USE_WEIGHTS, "heavy.*deviation of x.*quantiles"),
    "error unknown": ({"spread_error": NAN}, USE_WEIGHTS, "heavy"),
    "gap unknown": ({"spread_gap": NAN}, USE_WEIGHTS, "other moments"),
}


@pytest.mark.parametrize(("change", "verdict", "advice"), BY_ANSWERS.values(), ids=BY_ANSWERS)
def test_plain_answers_must_be_those_of_the_weights(change, verdict, advice):
    judged = judge(WEIGHTS, AUDIT, ANSWERS._replace(**change))
    assert judged.verdict is verdict
    assert re.search(advice, judged.advice)


def test_thresholds_are_one_table_that_can_be_changed():
    assert judge(WEIGHTS, AUDIT, limits=LIMITS._replace(close=0.05)).verdict is USE_WEIGHTS
    assert judge(WEIGHTS, limits=LIMITS._replace(unsound_khat=0.3)).verdict is DO_NOT_USE
    assert judge(CHAINS, limits=LIMITS._replace(enough=4000)).verdict is NO_PROOF


def test_the_name_of_a_judgement_is_the_verdict_in_words():
    assert judge(WEIGHTS, AUDIT).name == "trustworthy"
    assert judge(WEIGHTS).name == "use the weights"
    assert judge(CHAINS._replace(exact=False)).name == "no proof of quality"
    assert judge(WEIGHTS._replace(khat=INF)).name == "do not use"


def test_what_is_trustworthy_weighted_or_predicts_well_can_be_used():
    usable = [one for one in Verdict if one.is_usable]
    assert usable == [TRUSTWORTHY, USE_WEIGHTS, GOOD_FOR_PREDICTIONS]


@pytest.mark.parametrize("audit", [AUDIT._replace(rests_on="chains"), LOCALS])
def test_an_audit_is_known_by_its_fields(audit):
    assert as_audit(audit._asdict()) == audit
