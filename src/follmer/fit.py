"""The one training loop: chunks on the device; progress, decisions and files between them."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, Key, PRNGKeyArray, PyTree

from follmer.checkpoint import Checkpoint, Run
from follmer.checks import as_key, positive_int
from follmer.diagnostics import ess_fraction
from follmer.errors import InputError, NonFiniteError, options_checked, unknown_option
from follmer.gamma_search import GAMMAS, search_gamma
from follmer.moments import by_moments
from follmer.nsfs import NSFS, Info, State, algorithm_options
from follmer.objectives import BridgeMatching
from follmer.posterior import Posterior
from follmer.progress import Bar, Pace
from follmer.reference import by_reference
from follmer.samplers import DRAWS_AT_ONCE, Flow, draw
from follmer.second_try import second_try
from follmer.structured_sampling import flow_of
from follmer.targets import Affine, StructuredTarget, Target, as_target
from follmer.warmup import Start, structured_start, warm_up

# Steps in a row without a finite gradient before training is given up.
_MAX_SKIPPED_IN_A_ROW = 50
# Nats by which the ELBO must rise to count as better, however small its noise.
_SMALLEST_GAIN = 1e-3
# Weights this even, twice in a row, leave nothing to learn.
_EVEN = 0.99

# How the note of a run that Ctrl-C cut short begins.
INTERRUPTED = "training was interrupted"

# The authors' own setting: `fit(target, key=key, **PAPER)`. It keeps variance `gamma` around a mean
# and does not reach the posterior; their gamma was picked per experiment from .5² … .01².
PAPER: Mapping[str, Any] = {
    "precondition": "identity",
    "objective": "det",
    "drift": "batch_norm_mlp",
    "gamma": 0.05**2,
    "num_steps": 20,
    "grid": "uniform",
    "step_rule": "euler_maruyama",
    "num_iterations": 300,
    "learning_rate": optax.constant_schedule(1e-4),
}


class Report(NamedTuple):
    """What a callback sees after each chunk. Returning True from a callback ends training."""

    iteration: int
    loss: float
    elbo: float
    ess_fraction: float
    state: State


Callback = Callable[[Report], Any]


@options_checked
def fit(
    target: Target | StructuredTarget | NSFS,
    *,
    key: PRNGKeyArray,
    precondition: str | Affine = "auto",
    reference: Posterior | None = None,
    chunk_size: int = 100,
    patience: int | None = 10,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    resume: bool = False,
    check: bool = True,
    audit: bool = True,
    progress: bool = True,
    **options: Any,
) -> Posterior:
    """Train the drift and return the posterior.

    **Arguments:**

    - `target`: what to sample, with NSFS's arguments as further `options`; or an `NSFS`, which is
      then trained as it is. `gamma="search"` trains briefly with each of the paper's gammas, .5²,
      .2², .1², .05² and .01², and goes on with that of the highest ELBO.
    - `precondition`: how coordinates are found in which the target is near N(0, I). "auto" climbs
      from many starts, whitens by the curvature where it finds one mode and explores by tempered
      SMC where it finds several, or where draws from one mode do not reach the posterior; it also
      chooses the settings that are not given, and its choice is in the posterior's notes. Else
      "identity", "prior", "diagonal", "laplace", "low_rank", "pathfinder", "moments" (of the draws,
      in rounds of training), "explore", or an `Affine`.
    - `reference`: the process of the target's prior (`follmer.prior_process`): training steers away
      from it by the likelihood alone, in the process's own coordinates and on its time grid.
    - `chunk_size`: iterations between evaluations of the ELBO, callbacks and checkpoints.
    - `patience`: stop after this many evaluations without a better ELBO, or once the weights are
      even; None never stops early.
    - `callbacks`: functions of a `Report`, called after each chunk.
    - `checkpoint`: a folder that holds the run so far; with `resume=True` an interrupted run goes
      on from there, bit for bit as if it had not been interrupted.
    - `check`: evaluate the density and its gradient before training (`Target.check`).
    - `audit`: get a second opinion on the draws after training (`Posterior.audited`), without which
      no verdict is better than "use the weights".

    Ctrl-C ends training and returns the best drift so far.
    """
    key = as_key(key)
    chunk_size = positive_int("chunk_size", chunk_size)
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError("callbacks must be a list of functions of a Report.")
    if patience is not None:
        positive_int("patience", patience)
    check_key, train_key, warm_key, audit_key = jax.random.split(key, 4)
    retry_key = jax.random.fold_in(audit_key, 0)
    check_options(options)
    if reference is not None:
        _check_alone(target, precondition)
    searched = isinstance(options.get("gamma"), str) and options["gamma"] == "search"
    if searched:
        options["gamma"] = max(GAMMAS)
    if isinstance(target, NSFS):
        start = Start(None, {}, "")
        algorithm = dataclasses.replace(target, **options) if options else target
    else:
        algorithm = NSFS(target, **options)
    if check:
        algorithm.target.check(key=check_key, scale=float(np.sqrt(algorithm.gamma)))
    train = functools.partial(
        _train,
        key=train_key,
        chunk_size=chunk_size,
        patience=patience,
        callbacks=callbacks,
        progress=progress,
    )
    brief = functools.partial(_briefly, train)
    if not isinstance(target, NSFS):
        make = functools.partial(_started, target, options=options)
        if reference is not None:
            start = by_reference(as_target(target), reference, warm_key)
        elif isinstance(target, StructuredTarget):
            start = structured_start(precondition, target, warm_key)
        elif isinstance(precondition, str) and precondition == "moments":
            start = by_moments(target, lambda short: Flow(short, brief(short).best), make, warm_key)
        else:
            start = warm_up(precondition, target, warm_key)
        algorithm = make(start)
    if searched:
        algorithm, words, gradients = search_gamma(algorithm, lambda short: brief(short).best_elbo)
        start = start._replace(
            words="; ".join(filter(None, [start.words, words])),
            gradient_evaluations=start.gradient_evaluations + gradients,
        )
    saved = Checkpoint.open(checkpoint, resume, algorithm, key, chunk_size)
    whitened = algorithm.target.space.affine is not None
    may_be_done = whitened and patience is not None and algorithm.batch_size is None
    trained = train(algorithm, saved, may_be_done=may_be_done)
    posterior = _posterior(algorithm, trained, start)
    # Where known modes are left out, MCMC from the draws cannot vouch for them.
    if audit and not start.is_partial:
        posterior = posterior.audited(key=audit_key)
    if not start.from_mode or options or checkpoint or trained.interrupted:
        return posterior

    def explore(key: PRNGKeyArray) -> Posterior:
        return fit(
            target,
            key=key,
            precondition="explore",
            chunk_size=chunk_size,
            patience=patience,
            callbacks=callbacks,
            check=False,
            audit=audit,
            progress=progress,
        )

    return second_try(posterior, explore, retry_key)


class _Trained(NamedTuple):
    run: Run
    notes: tuple[str, ...]
    interrupted: bool


def _briefly(train: Callable[..., _Trained], algorithm: NSFS) -> Run:
    """A run that is not kept."""
    trained = train(algorithm, Checkpoint(None, {}), callbacks=())
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.run


def _train(
    algorithm: NSFS,
    saved: Checkpoint,
    *,
    key: PRNGKeyArray,
    chunk_size: int,
    patience: int | None,
    callbacks: Sequence[Callback],
    progress: bool,
    may_be_done: bool = False,
) -> _Trained:
    """The loop itself, from the start or from a checkpoint.

    Where a warm-up `may_be_done` already, as it is for a Gaussian, that is looked at first.
    """
    init_key, train_key, evaluation_key = jax.random.split(key, 3)
    state = jax.jit(algorithm.init)(init_key)
    if not jax.tree.leaves(state.parameters):
        raise InputError(
            "the drift has no parameters to train.",
            cause="a plain function was passed as the drift",
            hint="an Equinox module, or a drift by name",
        )
    run = saved.load(state) if saved.exists else Run.start(state)
    loop = _Loop(algorithm, train_key, evaluation_key, chunk_size, run.state)
    if may_be_done and run.iteration == 0:
        looked_at = loop.look(run)
        if _is_even(looked_at):
            note = "whitened, the target is a Gaussian: nothing was left to train"
            return _Trained(looked_at._replace(best=run.state.average), (note,), False)
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
    return _Trained(run, tuple(notes), interrupted)


class _Loop:
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

    def _evaluated(self, state: State, data: PyTree, again: int = 0) -> tuple[float, float, float]:
        """ELBO, its standard error and the ESS of the averaged drift on fresh paths."""
        key = jax.random.fold_in(self.evaluation_key, state.iteration + again)
        keys = jax.random.split(key, DRAWS_AT_ONCE)
        if self.algorithm.batch_size is None:
            # Compiled once, for this and for the posterior's draws.
            _, log_weights = draw(Flow(self.algorithm, state.average), keys, None, data)
        else:
            log_weights = self._weigh(state.average, keys, data)
        # Early drifts may send paths where the density is not finite.
        with np.errstate(invalid="ignore", over="ignore"):
            se = float(np.std(np.asarray(log_weights))) / np.sqrt(DRAWS_AT_ONCE)
        return float(jnp.mean(log_weights)), se, float(ess_fraction(log_weights))

    def _weigh_on_device(self, average: PyTree, keys: Key[Array, " paths"], data: PyTree) -> Array:
        def log_weight(key: PRNGKeyArray) -> Array:
            # A batch for every path: their noise is then part of the standard error.
            batch_key, path_key = jax.random.split(key)
            batch = self.algorithm.random_batch(batch_key, data)
            return self.algorithm.simulate(average, path_key[None], None, batch)[1][0]

        return jax.vmap(log_weight)(keys)


def check_options(options: Iterable[str]) -> None:
    """An error for a name that is neither an option of `fit` nor of the algorithm."""
    known = {*algorithm_options(), *_FIT_OPTIONS}
    for name in options:
        if name not in known:
            raise unknown_option(name, known)


def _check_alone(target: Any, precondition: Any) -> None:
    """What a reference decides is not given as well."""
    given = "an NSFS" if isinstance(target, NSFS) else ""
    if not (isinstance(precondition, str) and precondition == "auto"):
        given = f"precondition={precondition!r}"
    if given:
        raise InputError(
            f"reference was given together with {given}.",
            cause="the reference brings its own coordinates and time grid",
            hint="follmer.fit(target, reference=process, key=key)",
        )


def _started(target: Target | StructuredTarget, start: Start, options: dict[str, Any]) -> NSFS:
    """The algorithm in the coordinates that a warm-up found; what the user set stands."""
    settings = dict(start.settings)
    if start.draws is not None:
        settings["objective"] = BridgeMatching(start.draws)
    return NSFS(target.whitened(start.affine), **{**settings, **options})


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


def _posterior(algorithm: NSFS, trained: _Trained, start: Start) -> Posterior:
    flow = flow_of(algorithm, trained.run.best)
    how = ", steered by the score" if algorithm.drift == "score_guided" else ""
    words = (start.words + how,) if start.words else ()
    iterations = len(trained.run.history["loss"])
    gradients = start.gradient_evaluations + algorithm.gradient_evaluations(iterations)
    return Posterior(
        algorithm.target,
        flow,
        trained.run.history,
        words + trained.notes,
        gradient_evaluations=gradients,
    )


_FIT_OPTIONS = [name for name in fit.__annotations__ if name not in ("target", "options", "return")]
