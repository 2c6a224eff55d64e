"""Up the ladder: one loop of plan, train, judge; the first posterior that can be used is kept."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError
from follmer.fitting.checkpoint import Checkpoint, Progressed, Run
from follmer.fitting.gamma_search import search_gamma
from follmer.fitting.request import Request, Schedule
from follmer.fitting.training import initial_state, train, train_briefly
from follmer.judging import Judgement, Verdict, judge
from follmer.judging.audit import audited
from follmer.plans import Plan, Survey, UnreachableError, ladder
from follmer.plans.reference import by_reference
from follmer.posterior.posterior import Attempt, Posterior
from follmer.posterior.structured import flow_of
from follmer.targets import as_target
from follmer.tools.keys import named_key
from follmer.tools.programs import tidy


class _Reached(NamedTuple):
    """A posterior and what there is to say of the way to it."""

    posterior: Posterior
    judgement: Judgement
    elbo: float
    interrupted: bool


def climb_ladder(
    request: Request,
    key: PRNGKeyArray,
    schedule: Schedule,
    saved: Checkpoint | None,
    *,
    audit: bool,
) -> Posterior:
    """Plan, train and judge on each rung in turn; the best posterior, and what was tried."""
    tidy()
    survey = Survey(request.target, named_key(key, "survey"), progress=schedule.progress)
    resumed = None if saved is None else saved.progressed(request.target)
    attempts = () if resumed is None else resumed.attempts
    spent = 0 if resumed is None else resumed.gradient_evaluations
    if resumed is not None and resumed.population is not None:
        survey.population = resumed.population
    best: _Reached | None = None
    for plan in _plans(request, survey, key, resumed):
        began = time.perf_counter()
        progressed = Progressed(plan, attempts, spent + survey.density.gradient_evaluations, None)
        reached = _reached(request, plan, survey, key, schedule, saved, progressed, audit)
        cost = reached.posterior.gradient_evaluations or 0
        attempts += (
            Attempt(
                plan.rung,
                plan.why,
                reached.judgement.name,
                reached.elbo,
                cost,
                time.perf_counter() - began,
            ),
        )
        spent += cost
        if best is None or _is_better(reached, best):
            best = reached
        if reached.judgement.verdict.is_usable or reached.interrupted:
            break
    assert best is not None
    notes = [plan_note(one) for one in attempts if one.why]
    total = spent + survey.density.gradient_evaluations
    return best.posterior.with_plan(attempts, total).with_notes_first(*notes)


def open_checkpoint(
    folder: str | Path | None, resume: bool, request: Request, key: PRNGKeyArray, chunk_size: int
) -> Checkpoint | None:
    """The checkpoint in a folder, looked at before anything is computed; None without a folder."""
    if folder is None:
        if resume:
            raise InputError("resume=True needs checkpoint=, the folder to resume from.")
        return None
    return Checkpoint.open(folder, resume=resume, fingerprint=request.fingerprint(key, chunk_size))


def plan_note(attempt: Attempt) -> str:
    """An attempt in a line."""
    return f"{attempt.why} ({attempt.rung}: {attempt.verdict})"


def _plans(
    request: Request, survey: Survey, key: PRNGKeyArray, resumed: Progressed | None
) -> Iterator[Plan]:
    """The plans to try: that of the interrupted run first, then what is left of the ladder."""
    if request.is_given:
        assert request.algorithm is not None
        settings = request.algorithm.options
        if request.searches_gamma:
            # Left to the search, unless it was over before the run was interrupted.
            del settings["gamma"]
            found = {} if resumed is None else resumed.plan.settings
            settings |= {name: one for name, one in found.items() if name == "gamma"}
        yield Plan("given", request.target, settings, "")
        return
    if request.reference is not None:
        target = as_target(request.target)
        yield by_reference(target, request.reference, named_key(key, "reference"))
        return
    rungs = ladder(request.precondition, survey, request.options)
    if resumed is not None:
        yield resumed.plan
        names = [name for name, _ in rungs]
        rungs = rungs[names.index(resumed.plan.rung) + 1 :] if resumed.plan.rung in names else []
    for i, (name, strategy) in enumerate(rungs):
        try:
            yield strategy(survey, named_key(key, f"plan {name}"))
        except UnreachableError:
            if i + 1 == len(rungs):
                raise


def _reached(
    request: Request,
    plan: Plan,
    survey: Survey,
    key: PRNGKeyArray,
    schedule: Schedule,
    saved: Checkpoint | None,
    progressed: Progressed,
    audit: bool,
) -> _Reached:
    """The plan's posterior, trained where it has to be, and judged."""
    if plan.sampler is not None:
        posterior = Posterior(
            request.target, plan.sampler, gradient_evaluations=0, progress=schedule.progress
        )
        interrupted = False
    else:
        posterior, interrupted = _trained(request, plan, survey, key, schedule, saved, progressed)
    if interrupted:
        told = Judgement(Verdict.NO_PROOF, "training was interrupted: nothing was judged")
        return _Reached(posterior, told, float("nan"), interrupted)
    if audit:
        population = None if request.target.has_locals else survey.population_to_compare
        audit_key = named_key(key, f"audit {len(progressed.attempts)}")
        posterior = audited(posterior, key=audit_key, population=population)
    found = posterior.diagnostics(key=named_key(key, f"judge {len(progressed.attempts)}"))
    elbo = getattr(found, "elbo", float("nan"))
    return _Reached(posterior, judge(found, posterior.audit), elbo, interrupted)


def _trained(
    request: Request,
    plan: Plan,
    survey: Survey,
    key: PRNGKeyArray,
    schedule: Schedule,
    saved: Checkpoint | None,
    progressed: Progressed,
) -> tuple[Posterior, bool]:
    algorithm = plan.algorithm({} if request.is_given else request.options)
    notes: tuple[str, ...] = ()
    spent = 0
    train_key = named_key(key, f"training {len(progressed.attempts)}")
    if request.searches_gamma and "gamma" not in plan.settings:
        choice = search_gamma(
            algorithm, lambda short: train_briefly(short, train_key, schedule).best_elbo
        )
        algorithm, notes, spent = choice.algorithm, (choice.words,), choice.gradient_evaluations
        gamma = {**plan.settings, "gamma": algorithm.process.gamma}
        progressed = progressed._replace(plan=plan._replace(settings=gamma))
    elif request.searches_gamma:
        algorithm = algorithm.changed(gamma=plan.settings["gamma"])
    # What an audit will compare with is part of the run: a resumed one does not look again.
    if not request.target.has_locals and "population" in vars(survey):
        progressed = progressed._replace(population=survey.population)
    state = initial_state(algorithm, train_key)
    run = Run.start(state) if saved is None else saved.load(state, plan.rung)

    def save(run: Run) -> None:
        if saved is not None:
            saved.save(run, progressed)

    trained = train(algorithm, run, train_key, schedule, save)
    history = trained.run.history
    posterior = Posterior(
        request.target,
        flow_of(algorithm.process, trained.run.best),
        history,
        (*notes, *trained.notes),
        gradient_evaluations=spent + algorithm.gradient_evaluations(len(history["loss"])),
        progress=schedule.progress,
    )
    return posterior, trained.interrupted


def _is_better(one: _Reached, other: _Reached) -> bool:
    order = list(Verdict)
    ranks = [order.index(each.judgement.verdict) for each in (one, other)]
    elbos = [each.elbo if np.isfinite(each.elbo) else -np.inf for each in (one, other)]
    return (ranks[0], -elbos[0]) < (ranks[1], -elbos[1])
