"""Up the ladder: one loop of plan, train, judge; the first posterior that can be used is kept."""

import time
from collections.abc import Iterator
from pathlib import Path

from jaxtyping import PRNGKeyArray
from threadpoolctl import threadpool_limits

from follmer.errors import InputError
from follmer.fitting.checkpoint import Checkpoint, Progressed, Run
from follmer.fitting.gamma_search import search_gamma
from follmer.fitting.request import Request, Schedule
from follmer.fitting.training import initial_state, train, train_briefly
from follmer.judging import Diagnostics, Judgement, Verdict
from follmer.judging.audit import Examination, examined
from follmer.plans import Plan, Survey, UnreachableError, ladder
from follmer.plans.reference import by_reference
from follmer.posterior.posterior import Attempt, Posterior
from follmer.posterior.structured import flow_of
from follmer.targets import as_target
from follmer.tools.keys import named_key
from follmer.tools.programs import tidy
from follmer.tools.progress import Telling

# Coordinates up to which the host's small matrix products are made by one thread: more only get in
# each other's way, and in that of the device.
_SMALL = 200


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
    threads = 1 if request.target.dim <= _SMALL else None
    with threadpool_limits(threads, user_api="blas"), Telling(schedule.progress) as telling:
        climb = _Climb(request, key, schedule, saved, audit, telling)
        best: Examination | None = None
        for plan in climb.plans():
            reached = climb.reached(plan)
            if best is None or _is_better(reached, best):
                best = reached
            if climb.is_over(reached):
                break
    assert best is not None
    notes = [plan_note(one) for one in climb.attempts if one.why]
    posterior = best.posterior.with_plan(climb.attempts, climb.gradient_evaluations)
    return posterior.with_notes_first(*notes)


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


class _Climb:
    """One way up: what was asked for, what is known of the target, what was tried so far."""

    def __init__(
        self,
        request: Request,
        key: PRNGKeyArray,
        schedule: Schedule,
        saved: Checkpoint | None,
        audit: bool,
        telling: Telling,
    ):
        self.request, self.key, self.schedule, self.saved = request, key, schedule, saved
        self.audit, self._tell = audit, telling.tell
        self.survey = Survey(
            request.target,
            named_key(key, "survey"),
            store=None if saved is None else saved.for_rungs(),
            tell=telling.tell,
            out_of_time=schedule.deadline,
            progress=schedule.progress,
        )
        self.resumed = None if saved is None else saved.progressed(request.target)
        self.attempts = () if self.resumed is None else self.resumed.attempts
        self._spent = 0 if self.resumed is None else self.resumed.gradient_evaluations
        if self.resumed is not None:
            self.survey.recalled = self.resumed.facts
            if self.resumed.population is not None:
                self.survey.population = self.resumed.population

    @property
    def gradient_evaluations(self) -> int:
        """Those of the survey, and of every rung."""
        return self._spent + self.survey.density.gradient_evaluations

    def plans(self) -> Iterator[Plan]:
        """The plans to try: that of the interrupted run first, then what is left of the ladder."""
        request = self.request
        if request.is_given:
            yield self._given()
            return
        if request.reference is not None:
            target = as_target(request.target)
            yield by_reference(target, request.reference, named_key(self.key, "reference"))
            return
        rungs = ladder(request.precondition, self.survey, request.options)
        if self.resumed is not None:
            yield self.resumed.plan
            names = [name for name, _ in rungs]
            done = self.resumed.plan.rung
            rungs = rungs[names.index(done) + 1 :] if done in names else []
        for i, (name, strategy) in enumerate(rungs):
            try:
                yield strategy(self.survey, named_key(self.key, f"plan {name}"))
            except UnreachableError:
                if i + 1 == len(rungs) and not self.attempts:
                    raise

    def reached(self, plan: Plan) -> Examination:
        """The plan's posterior, trained where it has to be, and judged."""
        began, count = time.perf_counter(), len(self.attempts)
        if plan.sampler is not None:
            posterior = Posterior(
                self.request.target,
                plan.sampler,
                notes=plan.notes,
                gradient_evaluations=0,
                progress=self.schedule.progress,
            )
            self.interrupted = False
        else:
            posterior, self.interrupted = self._trained(plan)
        if self.interrupted:
            told = Judgement(Verdict.NO_PROOF, "training was interrupted: nothing was judged")
            nothing = Diagnostics(*5 * [float("nan")])
            found = Examination(posterior.with_judgement(told), nothing)
        else:
            self._tell("comparing draws with chains")
            weighs = posterior.sampler.weighs
            alone = self.request.target.has_locals or not (self.audit and weighs)
            found = examined(
                posterior,
                key=named_key(self.key, f"judge {count}"),
                audit=self.audit,
                population=None if alone else self.survey.population_to_compare,
                facts={} if alone else self.survey.facts,
            )
        cost, seconds = posterior.gradient_evaluations or 0, time.perf_counter() - began
        assert found.posterior.judgement is not None
        verdict = found.posterior.judgement.name
        self._spent += cost
        self.attempts += (Attempt(plan.rung, plan.why, verdict, found.elbo, cost, seconds),)
        return found

    def is_over(self, reached: Examination) -> bool:
        """Whether the posterior will do, or no other could be had."""
        if self.interrupted or self.schedule.deadline() or self.survey.flat:
            return True
        verdict = reached.posterior.verdict
        if verdict is not Verdict.USE_WEIGHTS or not isinstance(reached.found, Diagnostics):
            return verdict is not None and verdict.is_usable
        policy, found = self.survey.policy, reached.found
        return policy.will_do(found.ess_fraction, found.eubo - found.log_evidence)

    def _given(self) -> Plan:
        """The algorithm that was given, as it is."""
        request = self.request
        assert request.algorithm is not None
        settings = request.algorithm.options
        if request.searches_gamma:
            # Left to the search, unless it was over before the run was interrupted.
            del settings["gamma"]
            found = {} if self.resumed is None else self.resumed.plan.settings
            settings |= {name: one for name, one in found.items() if name == "gamma"}
        return Plan("given", request.target, settings, "")

    def _trained(self, plan: Plan) -> tuple[Posterior, bool]:
        request, schedule, saved = self.request, self.schedule, self.saved
        algorithm = plan.algorithm({} if request.is_given else request.options)
        progressed = Progressed(plan, self.attempts, self.gradient_evaluations, None)
        notes: tuple[str, ...] = ()
        spent = 0
        train_key = named_key(self.key, f"training {len(self.attempts)}")
        self._tell("training")
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
        if not request.target.has_locals:
            known = vars(self.survey).get("population")
            progressed = progressed._replace(population=known, facts=self.survey.facts)
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


def _is_better(one: Examination, other: Examination) -> bool:
    """The better verdict; of equal ones, the one whose bounds are closer."""
    order = list(Verdict)
    verdicts = [each.posterior.verdict for each in (one, other)]
    ranks = [len(order) if each is None else order.index(each) for each in verdicts]
    return (ranks[0], one.gap) < (ranks[1], other.gap)
