"""The one training loop: chunks on the device; progress, decisions and files between them."""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from follmer.errors import InputError, NonFiniteError, user_stack_level
from follmer.fitting.checkpoint import Run
from follmer.fitting.request import Report, Schedule
from follmer.judging import ess_fraction
from follmer.nsfs import NSFS, Info, State
from follmer.posterior.samplers import DRAWS_AT_ONCE, Flow, draw
from follmer.tools.keys import KeyRows, as_keys, key_rows, named_key, named_keys
from follmer.tools.mesh import in_turns
from follmer.tools.processes import first_says
from follmer.tools.programs import compiled
from follmer.tools.progress import Bar, Pace

# Steps in a row without a finite gradient before training is given up.
_MAX_SKIPPED_IN_A_ROW = 50
# Nats by which the ELBO must rise to count as better, however small its noise.
_SMALLEST_GAIN = 1e-3
# Operations of gradients of batches that are weighed at once: a bound on memory.
_COST_AT_ONCE = 1e10
# Weights this even, twice in a row, leave nothing to learn.
_EVEN = 0.99

# How the note of a run that Ctrl-C cut short begins.
INTERRUPTED = "training was interrupted"


class Trained(NamedTuple):
    """How far training came, and what is worth telling."""

    run: Run
    notes: tuple[str, ...]
    interrupted: bool


def initial_state(algorithm: NSFS, key: PRNGKeyArray) -> State:
    """The state before training; an error where there is nothing to train."""
    state = _init(algorithm, named_key(key, "init"))
    if not jax.tree.leaves(state.parameters):
        raise InputError(
            "the drift has no parameters to train.",
            cause="a plain function was passed as the drift",
            hint="an Equinox module, or a drift by name",
        )
    return state


def train(
    algorithm: NSFS,
    run: Run,
    key: PRNGKeyArray,
    schedule: Schedule,
    save: Callable[[Run], None] = lambda run: None,
) -> Trained:
    """Train from a run on, in chunks, until it is finished or Ctrl-C ends it."""
    loop = _Loop(algorithm, key, schedule.chunk_size, run.state)
    notes, interrupted = [], False
    bar = Bar(algorithm.num_iterations, done=run.iteration, visible=schedule.progress)
    with bar:
        try:
            while not _is_finished(run, algorithm.num_iterations, schedule.patience):
                run = _with_best(loop.chunk(run, bar))
                save(run)
                answers = [callback(_report(run)) for callback in schedule.callbacks]
                ends = any(isinstance(answer, bool | np.bool_) and answer for answer in answers)
                if first_says(ends):
                    break
                if schedule.deadline():
                    notes.append(f"the time was up at iteration {run.iteration} of training")
                    break
        except KeyboardInterrupt:
            interrupted = True
            warnings.warn(
                f"interrupted at iteration {run.iteration}: the best drift so far is returned",
                stacklevel=user_stack_level(),
            )
            notes.append(f"{INTERRUPTED} at iteration {run.iteration}")
            if run.best is None:
                run = run._replace(best=loop.latest.average)
    skipped = int(np.sum(run.history["skipped"]))
    if skipped:
        notes.append(f"{skipped} training steps with non-finite gradients were skipped")
    return Trained(run, tuple(notes), interrupted)


def train_briefly(algorithm: NSFS, key: PRNGKeyArray, schedule: Schedule) -> Run:
    """A run that is not kept, without callbacks."""
    state = initial_state(algorithm, key)
    trained = train(algorithm, Run.start(state), key, schedule._replace(callbacks=()))
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.run


class _Loop:
    """Chunks of training, and an evaluation after each."""

    def __init__(self, algorithm: NSFS, key: PRNGKeyArray, chunk_size: int, state: State):
        self.algorithm = algorithm
        self.chunk_size = chunk_size
        self.latest = state  # newer than the run's own when a chunk is cut short
        self._train_key, self._evaluation_key = named_keys(key, "steps", "evaluations")
        self._pace = Pace()

    def chunk(self, run: Run, bar: Bar) -> Run:
        """Train up to the next multiple of the chunk size, then evaluate the averaged drift."""
        state, infos = run.state, list[Info]()
        end = min(run.iteration + self.chunk_size, self.algorithm.num_iterations)
        done = run.iteration
        while done < end:
            count = min(self._pace.count, end - done)
            began = time.perf_counter()
            state, info = _advance(
                self.algorithm,
                state,
                self._train_key,
                jax.device_put(np.asarray(count, int)),
                self.chunk_size,
            )
            info = jax.tree.map(lambda values, n=count: np.asarray(values)[:n], info)
            self._pace.took(count, time.perf_counter() - began)
            infos.append(info)
            done += count
            self.latest = state
            bar.advance(count, loss=float(info.loss[-1]))
        key = jax.random.fold_in(self._evaluation_key, end)
        if self.algorithm.process.has_statistics:
            state = _with_statistics(self.algorithm, state, named_key(key, "statistics"))
        elbo, elbo_se, ess = self._evaluated(state, named_key(key, "draws"))
        # The weights of batches say nothing of the draws'.
        bar.show(elbo=elbo, **({"ess": ess} if self.algorithm.batch_size is None else {}))
        info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
        return run.extended(state, info, elbo=elbo, elbo_se=elbo_se, ess=ess)

    def _evaluated(self, state: State, key: PRNGKeyArray) -> tuple[float, float, float]:
        """ELBO, its standard error and the ESS of the averaged drift on fresh paths."""
        keys = key_rows(key, DRAWS_AT_ONCE)
        if self.algorithm.batch_size is None:
            # Compiled once, for this and for the posterior's draws.
            _, found = draw(Flow(self.algorithm.process, state.average), keys, None)
        else:
            found = _weigh_by_batches(self.algorithm, state, keys)
        log_weights = np.asarray(found, float)
        # Early drifts may send paths where the density is not finite.
        with np.errstate(invalid="ignore", over="ignore"):
            se = float(log_weights.std()) / np.sqrt(DRAWS_AT_ONCE)
        return float(log_weights.mean()), se, ess_fraction(log_weights)


@compiled
def _init(algorithm: NSFS, key: PRNGKeyArray) -> State:
    return algorithm.init(key)


@compiled
def _advance(
    algorithm: NSFS, state: State, key: PRNGKeyArray, count: Int[Array, ""], capacity: int
) -> tuple[State, Info]:
    """So many training steps, and what each told; the same however they are cut up."""

    def step(state: State) -> tuple[State, Info]:
        batch_key, path_key = step_keys(key, state.iteration)
        batch = algorithm.target.random_batch(batch_key, algorithm.batch_size)
        return algorithm.step(state, path_key, batch if algorithm.batch_size else None)

    def body(i: Array, carry: tuple[State, Info]) -> tuple[State, Info]:
        state, infos = carry
        state, info = step(state)
        return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), infos, info)

    info = Info(*(jnp.zeros(capacity, dtype) for dtype in _info_types(algorithm)))
    return jax.lax.fori_loop(0, count, body, (state, info))


def step_keys(
    key: PRNGKeyArray, iteration: Int[Array, ""] | int
) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of one step's batch and of its paths."""
    batch_key, path_key = named_keys(jax.random.fold_in(key, iteration), "batch", "step")
    return batch_key, path_key


def _info_types(algorithm: NSFS) -> list[Any]:
    dtype = algorithm.target.dtype
    return [bool if name == "skipped" else dtype for name in Info._fields]


@compiled
def _with_statistics(algorithm: NSFS, state: State, key: PRNGKeyArray) -> State:
    batch_key, path_key = named_keys(key, "batch", "paths")
    size = algorithm.batch_size
    batch = algorithm.target.random_batch(batch_key, size) if size else None
    average = algorithm.process.with_statistics(state.average, algorithm.num_paths, path_key, batch)
    return state._replace(average=average)


@compiled
def _weigh_by_batches(algorithm: NSFS, state: State, rows: KeyRows) -> Array:
    def log_weight(key: PRNGKeyArray) -> Array:
        # A batch for every path: their noise is then part of the standard error.
        batch_key, path_key = named_keys(key, "batch", "path")
        batch = algorithm.target.random_batch(batch_key, algorithm.batch_size)
        return algorithm.process.simulate(state.average, path_key[None], None, batch)[1][0]

    keys, target = as_keys(rows), algorithm.target
    share = (algorithm.batch_size or 1) / (target.num_data or 1)
    at_once = int(_COST_AT_ONCE / max(share * target.gradient_cost, 1.0))
    return in_turns(log_weight, keys, int(np.clip(at_once, 1, len(keys))))


def _with_best(run: Run) -> Run:
    """Keep the best drift so far; raise where steps cannot be trained on."""
    _raise_if_persistent(run)
    # Within noise, and where nothing can be compared, the later drift is kept.
    clearly_worse = run.elbo < run.best_elbo - 2 * run.elbo_se
    if not (clearly_worse and np.isfinite(run.best_elbo)):
        run = run._replace(best=run.state.average)
    if run.elbo > run.best_elbo + max(run.elbo_se, _SMALLEST_GAIN):
        return run._replace(best_elbo=run.elbo, stale=0)
    return run._replace(stale=run.stale + 1)


def _is_finished(run: Run, num_iterations: int, patience: int | None) -> bool:
    if run.iteration >= num_iterations or patience is None:
        return run.iteration >= num_iterations
    recent = run.history["evaluation_ess"][-2:]
    is_even = len(recent) == 2 and bool(np.all(recent > _EVEN))
    return is_even or run.stale >= patience


def _raise_if_persistent(run: Run) -> None:
    # The lengths of the gaps between sound steps.
    sound = np.flatnonzero(run.history["skipped"] == 0)
    streaks = np.diff(np.concatenate([[-1], sound, [run.iteration]])) - 1
    if streaks.max() >= _MAX_SKIPPED_IN_A_ROW:
        raise NonFiniteError(
            f"{streaks.max()} training steps in a row up to iteration {run.iteration} had a loss "
            "or gradient that is not finite; all were skipped.",
            cause="paths reach regions where the density is not finite, or the drift diverged",
            hint="target.check(key=…, scale=3); a smaller learning_rate or clip_norm; constraints "
            "for bounded parameters; jax.config.update('jax_enable_x64', True)",
        )


def _report(run: Run) -> Report:
    return Report(run.iteration, float(run.history["loss"][-1]), run.elbo, run.ess, run.state)
