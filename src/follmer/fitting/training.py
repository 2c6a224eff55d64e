"""The one training loop: chunks on the device; progress, decisions and files between them."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray, PyTree

from follmer.errors import InputError, NonFiniteError
from follmer.fitting.checkpoint import Checkpoint, Run
from follmer.judging.diagnostics import ess_fraction
from follmer.nsfs import NSFS, Info, State
from follmer.posterior.samplers import DRAWS_AT_ONCE, Flow, draw
from follmer.tools.progress import Bar, Pace

# Steps in a row without a finite gradient before training is given up.
_MAX_SKIPPED_IN_A_ROW = 50
# Nats by which the ELBO must rise to count as better, however small its noise.
_SMALLEST_GAIN = 1e-3
# Weights this even, twice in a row, leave nothing to learn.
_EVEN = 0.99

# How the note of a run that Ctrl-C cut short begins.
INTERRUPTED = "training was interrupted"


class Report(NamedTuple):
    """What a callback sees after each chunk. Returning True from a callback ends training."""

    iteration: int
    loss: float
    elbo: float
    ess_fraction: float
    state: State


Callback = Callable[[Report], Any]


class Trained(NamedTuple):
    """What was trained, how far, and what is worth telling."""

    algorithm: NSFS
    run: Run
    notes: tuple[str, ...]
    interrupted: bool


def briefly(train: Callable[..., Trained], algorithm: NSFS) -> Run:
    """A run that is not kept."""
    trained = train(algorithm, Checkpoint(None, {}), callbacks=())
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.run


def train(
    algorithm: NSFS,
    saved: Checkpoint,
    *,
    key: PRNGKeyArray,
    chunk_size: int,
    patience: int | None,
    callbacks: Sequence[Callback],
    progress: bool,
    look_at: NSFS | None = None,
) -> Trained:
    """The loop itself, from the start or from a checkpoint.

    Where a warm-up may have done everything, as it has for a Gaussian, `look_at` says what to look
    at first: the same algorithm, perhaps with fewer steps.
    """
    init_key, train_key, evaluation_key = jax.random.split(key, 3)
    state = jax.jit(algorithm.init)(init_key)
    if not jax.tree.leaves(state.parameters):
        raise InputError(
            "the drift has no parameters to train.",
            cause="a plain function was passed as the drift",
            hint="an Equinox module, or a drift by name",
        )
    if look_at is not None and not saved.exists:
        first = Loop(look_at, train_key, evaluation_key, chunk_size, state).look(Run.start(state))
        if _is_even(first):
            note = "whitened, the target is a Gaussian: nothing was left to train"
            return Trained(look_at, first._replace(best=state.average), (note,), False)
    run = saved.load(state) if saved.exists else Run.start(state)
    loop = Loop(algorithm, train_key, evaluation_key, chunk_size, run.state)
    notes, interrupted = [], False
    with Bar(algorithm.num_iterations, done=run.iteration, visible=progress) as bar:
        try:
            while not _finished(run, algorithm.num_iterations, patience):
                run = _judge(loop.chunk(run, bar))
                saved.save(run)
                answers = [callback(_report(run)) for callback in callbacks]
                if any(isinstance(answer, bool | np.bool_) and answer for answer in answers):
                    break
        except KeyboardInterrupt:
            interrupted = True
            warnings.warn(
                f"interrupted at iteration {run.iteration}: the best drift so far is returned",
                stacklevel=3,
            )
            notes.append(f"{INTERRUPTED} at iteration {run.iteration}")
            if run.best is None:
                run = run._replace(best=loop.latest.average)
    skipped = int(np.sum(run.history["skipped"]))
    if skipped:
        notes.append(f"{skipped} training steps with non-finite gradients were skipped")
    return Trained(algorithm, run, tuple(notes), interrupted)


class Loop:
    """The compiled parts of training, traced once whatever the number of iterations."""

    def __init__(
        self,
        algorithm: NSFS,
        train_key: PRNGKeyArray,
        evaluation_key: PRNGKeyArray,
        chunk_size: int,
        state: State,
    ):
        self.algorithm = algorithm
        self.train_key = train_key
        self.evaluation_key = evaluation_key
        self.chunk_size = chunk_size
        self.latest = state  # newer than the run's own when a chunk is cut short
        self._advance = jax.jit(self._advance_on_device)  # traced once: the count is an argument
        self._settle = jax.jit(self._settle_on_device)
        self._weigh = jax.jit(self._weigh_on_device)
        self._pace = Pace()

    def chunk(self, run: Run, bar: Bar) -> Run:
        """Train up to the next multiple of the chunk size, then evaluate the averaged drift."""
        data = self.algorithm.target.data
        state, infos = run.state, list[Info]()
        end = min(run.iteration + self.chunk_size, self.algorithm.num_iterations)
        done = run.iteration
        while done < end:
            count = min(self._pace.count, end - done)
            began = time.perf_counter()
            state, info = self._advance(state, self.train_key, data, count)
            info = jax.tree.map(lambda values, n=count: np.asarray(values)[:n], info)
            self._pace.took(count, time.perf_counter() - began)
            infos.append(info)
            done += count
            self.latest = state
            bar.advance(count, loss=float(info.loss[-1]))
        if self.algorithm.has_statistics:
            state = self._settle(state, data)
        elbo, elbo_se, ess = self._evaluated(state, data)
        # The weights of batches say nothing of the draws'.
        bar.show(elbo=elbo, **({"ess": ess} if self.algorithm.batch_size is None else {}))
        info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
        return run.extended(state, info, elbo=elbo, elbo_se=elbo_se, ess=ess)

    def look(self, run: Run) -> Run:
        """Evaluate the drift as it is; twice, where the weights are even."""
        no_steps = Info(*(jnp.zeros(0) for _ in Info._fields))
        for again in range(2):
            elbo, elbo_se, ess = self._evaluated(run.state, self.algorithm.target.data, again)
            run = run.extended(run.state, no_steps, elbo=elbo, elbo_se=elbo_se, ess=ess)
            if not ess > _EVEN:
                break
        return run

    def _advance_on_device(
        self, state: State, key: PRNGKeyArray, data: PyTree, count: Int[Array, ""]
    ) -> tuple[State, Info]:
        def body(i: Array, carry: tuple[State, Info]) -> tuple[State, Info]:
            state, infos = carry
            batch_key, step_key = jax.random.split(jax.random.fold_in(key, state.iteration))
            batch = self.algorithm.random_batch(batch_key, data)
            state, info = self.algorithm.step(state, step_key, batch)
            return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), infos, info)

        _, shapes = jax.eval_shape(self.algorithm.step, state, key)
        infos = jax.tree.map(lambda s: jnp.zeros((self.chunk_size, *s.shape), s.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, (state, infos))

    def _settle_on_device(self, state: State, data: PyTree) -> State:
        key = jax.random.fold_in(self.evaluation_key, state.iteration)
        batch_key, path_key = jax.random.split(jax.random.fold_in(key, 0))
        batch = self.algorithm.random_batch(batch_key, data)
        return state._replace(average=self.algorithm.settled(state.average, path_key, batch))

    def _evaluated(self, state: State, data: PyTree, again: int = 0) -> tuple[float, float, float]:
        """ELBO, its standard error and the ESS of the averaged drift on fresh paths."""
        key = jax.random.fold_in(self.evaluation_key, state.iteration + again)
        keys = jax.random.split(key, DRAWS_AT_ONCE)
        if self.algorithm.batch_size is None:
            # Compiled once, for this and for the posterior's draws.
            _, found = draw(Flow(self.algorithm, state.average), keys, None, data)
        else:
            found = self._weigh(state.average, keys, data)
        log_weights = np.asarray(found, float)
        # Early drifts may send paths where the density is not finite.
        with np.errstate(invalid="ignore", over="ignore"):
            se = float(log_weights.std()) / np.sqrt(DRAWS_AT_ONCE)
        return float(log_weights.mean()), se, ess_fraction(log_weights)

    def _weigh_on_device(self, average: PyTree, keys: Key[Array, " paths"], data: PyTree) -> Array:
        def log_weight(key: PRNGKeyArray) -> Array:
            # A batch for every path: their noise is then part of the standard error.
            batch_key, path_key = jax.random.split(key)
            batch = self.algorithm.random_batch(batch_key, data)
            return self.algorithm.simulate(average, path_key[None], None, batch)[1][0]

        return jax.vmap(log_weight)(keys)


def _judge(run: Run) -> Run:
    """Keep the best drift so far; raise where steps cannot be trained on."""
    _raise_if_persistent(run)
    # Within noise, and where nothing can be compared, the later drift is kept.
    clearly_worse = run.elbo < run.best_elbo - 2 * run.elbo_se
    if not (clearly_worse and np.isfinite(run.best_elbo)):
        run = run._replace(best=run.state.average)
    if run.elbo > run.best_elbo + max(run.elbo_se, _SMALLEST_GAIN):
        return run._replace(best_elbo=run.elbo, stale=0)
    return run._replace(stale=run.stale + 1)


def _finished(run: Run, num_iterations: int, patience: int | None) -> bool:
    if run.iteration >= num_iterations or patience is None:
        return run.iteration >= num_iterations
    return _is_even(run) or run.stale >= patience


def _is_even(run: Run) -> bool:
    recent = run.history["evaluation_ess"][-2:]
    return len(recent) == 2 and bool(np.all(recent > _EVEN))


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
