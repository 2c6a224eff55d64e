"""The rung for networks: an ensemble of descents, and a chain from the end of each."""

import os
import sys

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError
from follmer.judging import audit_predictions
from follmer.judging.predictive_audit import may_change
from follmer.mcmc.ensembles import BURN_IN, Schedule, Settled, run_ensemble
from follmer.plans.fresh_draws import sampler_of
from follmer.plans.plan import Plan
from follmer.plans.survey import Survey
from follmer.posterior.along_chains import ChainFlow
from follmer.targets import AbstractTarget, as_target
from follmer.tools.keys import named_key

METHOD = "ensemble"
# Members. Two ensembles of 8 differ by .1 by chance in LPD on concrete and energy; 12 and 16 are
# better there, by .03 to .1 a time on concrete, and alike on boston. Seconds rise in proportion.
_MEMBERS = 12
# Steps of a descent and of a chain where all data are looked at, and how many pass between two
# states that are kept.
_DESCENT_STEPS, _STEPS, _THINNING = 3000, 5000, 25
# Operations of all steps of chains that look at all data (20 s on two cores). Chains do so where
# this is enough for the fewest steps: on power (split 0), LPD is .03 better than by batches.
_WHOLE_BUDGET = 1.8e12
# Operations of all steps of descents by batches.
_BUDGET = 1e12
# States of a chain, those of the burn-in included, where there are fewer steps.
_KEPT = 200
# Rows of a batch, and of one where networks are large; steps of descents by batches.
_BATCH, _SMALL_BATCH = 512, 128
_FEWEST_STEPS, _MOST_STEPS = 2000, 30_000
# Passes over the data that descents make at least, whatever they cost (MNIST: 6000 steps).
_FEWEST_PASSES = 12.8
# Members where networks are large, and Adam's first rate there: from .01, LeNet5 on CIFAR10 ends at
# an accuracy of .671 (8 points averaged, 5000 steps).
_FEW_MEMBERS = 8
_SMALL_RATE = 0.002
# Chains by batches have this share of the descents' steps.
_CHAIN_SHARE = 1 / 2
# The same for large networks, whose chains need thousands of steps to leave their descents' ends.
_LARGE_CHAIN_SHARE = 5 / 6
# Stored bytes that are told beforehand.
_MANY_BYTES = 2**30


def ensemble(
    survey: Survey,
    key: PRNGKeyArray,
    batch_size: int | None = None,
    num_iterations: int | None = None,
) -> Plan:
    """Stored draws of chains that start where independent descents end: nothing is trained."""
    target = survey.target
    schedule = schedule_for(target, batch_size)
    if num_iterations is not None:
        schedule = schedule.of_length(num_iterations)
    notes = _memory_notes(target, schedule, progress=survey.progress)
    store = survey.store
    found = run_ensemble(
        target,
        schedule,
        named_key(key, "ensemble"),
        load=store.load if store is not None else lambda: None,
        save=None if store is None else store.save,
        settled=_settled(target, schedule, named_key(key, "settled"), num_iterations),
        progress=survey.progress,
        stop=survey.out_of_time,
    )
    if found.schedule != schedule:
        notes.append(
            "the chains were prolonged: they had not settled, or predictions still changed"
        )
    survey.density.gradient_evaluations += found.schedule.gradients(target.num_data)
    sampler = sampler_of(target, found.draws, METHOD, named_key(key, "flow"))
    words = _words(schedule, found.draws)
    if isinstance(sampler, ChainFlow):
        words += "; fresh draws by a flow along the chains"
    if found.replaced:
        notes.append(f"{found.replaced} members' starts were not finite and were replaced")
    if found.undone:
        notes.append(f"{found.undone} steps of the chains were not finite and were undone")
    if found.interrupted:
        notes.append("the chains were interrupted, or out of time: they are shorter than planned")
    return Plan("ensemble", target, {}, words, sampler, notes=tuple(notes))


def _settled(
    target: AbstractTarget, schedule: Schedule, key: PRNGKeyArray, num_iterations: int | None
) -> Settled:
    """Tells of chains whether more steps, where they are affordable, might change predictions."""
    operations = 2.0 * _MEMBERS * target.gradient_cost * schedule.prolonged.num_steps
    chosen = num_iterations is not None or schedule.batch_size is not None
    predicts = target.num_data is not None and getattr(target, "predictive", None) is not None
    if chosen or not predicts or operations > _WHOLE_BUDGET:
        return lambda states: True
    model = as_target(target)
    return lambda states: not may_change(audit_predictions(model, states, key))


def schedule_for(target: AbstractTarget, batch_size: int | None = None) -> Schedule:
    """Members, steps and batches by what a gradient costs; what the user set stands."""
    cost = _MEMBERS * target.gradient_cost
    affordable = _WHOLE_BUDGET / (2.0 * cost)
    whole = _even(int(np.clip(affordable, _FEWEST_STEPS, _STEPS)))
    by_whole = Schedule(_MEMBERS, min(whole, _DESCENT_STEPS), whole, min(whole // _KEPT, _THINNING))
    if target.num_data is None or (batch_size is None and affordable >= _STEPS):
        return by_whole
    per_row, asked = cost / target.num_data, batch_size
    large = per_row * _BATCH * _FEWEST_STEPS * 2 > _BUDGET
    if batch_size is None:
        batch_size = min(_SMALL_BATCH if large else _BATCH, target.num_data)
    fewest = max(_FEWEST_STEPS, int(_FEWEST_PASSES * target.num_data / batch_size))
    steps = int(np.clip(_BUDGET / (per_row * batch_size), fewest, max(fewest, _MOST_STEPS)))
    if asked is None and affordable >= _FEWEST_STEPS:
        return by_whole._replace(num_descent_steps=steps, descent_batch=batch_size)
    share = _LARGE_CHAIN_SHARE if large else _CHAIN_SHARE
    chain = max(_FEWEST_STEPS, int(share * steps))
    found = Schedule(_MEMBERS, steps, _even(chain), _THINNING, batch_size, batch_size)
    return found._replace(num_members=_FEW_MEMBERS, descent_rate=_SMALL_RATE) if large else found


def _even(steps: int) -> int:
    """The steps as a multiple of what a call of a chain takes."""
    return max(steps // (20 * _THINNING), 2) * 20 * _THINNING


def _memory_notes(target: AbstractTarget, schedule: Schedule, *, progress: bool) -> list[str]:
    """What will be stored, where it is much; an error where the memory cannot hold it."""
    size = schedule.num_members * schedule.num_kept * target.dim * np.dtype(target.dtype).itemsize
    memory = _memory()
    if memory is not None and 2 * size > memory:
        raise InputError(
            f"the ensemble would store {size / 2**30:.1f} GiB of draws; the machine has "
            f"{memory / 2**30:.1f} GiB in all.",
            cause=f"{schedule.num_members} chains of {schedule.num_kept} states of {target.dim} "
            "coordinates",
            hint="a smaller network, or follmer.sgd for a point estimate",
        )
    if size <= _MANY_BYTES:
        return []
    words = f"the ensemble stores {size / 2**30:.1f} GiB of draws"
    if progress:
        print(words, file=sys.stderr)
    return [words]


def _memory() -> int | None:
    """The machine's memory in bytes, where it tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _words(schedule: Schedule, draws: np.ndarray) -> str:
    count, kept, _ = draws.shape
    how = f"{count} members from independent descents, {kept} states of a chain from each"
    if schedule.batch_size is None:
        return f"a network with equal modes: {how} (microcanonical Langevin, all data)"
    return (
        f"a network with equal modes: {how} (approximate: stochastic-gradient Hamiltonian dynamics "
        f"on batches of {schedule.batch_size})"
    )


__all__ = ["BURN_IN", "METHOD", "ensemble", "schedule_for"]
