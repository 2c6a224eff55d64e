"""One call from a target to its posterior: a warm-up, training, a second opinion."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError, options_checked, unknown_option
from follmer.fitting.checkpoint import Checkpoint
from follmer.fitting.gamma_search import GAMMAS, search_gamma
from follmer.fitting.second_try import second_try
from follmer.fitting.training import Callback, Trained, briefly, train
from follmer.nsfs import NSFS, algorithm_options
from follmer.objectives import BridgeMatching
from follmer.plans import Start, structured_start, warm_up
from follmer.plans.moments import by_moments
from follmer.plans.reference import by_reference
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import Flow
from follmer.posterior.structured import flow_of
from follmer.targets import Affine, StructuredTarget, Target, as_target
from follmer.tools.checks import as_key, positive_int

# The authors' own setting: `fit(target, key=key, **PAPER)`. It keeps variance `gamma` around a mean
# and does not reach the posterior; their gamma was picked per experiment from .5² … .01².
PAPER: Mapping[str, Any] = {
    "precondition": "identity",
    "objective": "det",
    "drift": "batch_norm_mlp",
    "gamma": 0.05**2,
    "num_steps": 20,
    "num_paths": 32,
    "grid": "uniform",
    "step_rule": "euler_maruyama",
    "num_iterations": 300,
    "learning_rate": optax.constant_schedule(1e-4),
    # Plain Adam, and the parameters where it ends.
    "clip_norm": 1e9,
    "average_decay": 0.0,
}

# Share of draws around 0 at which a density may overflow where training starts elsewhere.
_RARE = 0.05


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
      from many starts and whitens by the curvature where it finds one mode, along short chains
      where the mass is elsewhere; it explores by tempered SMC where it finds several, or where
      draws from one mode do not reach the posterior. It also chooses the settings that are not
      given, and its choice is in the posterior's notes. Else "identity", "prior", "diagonal",
      "laplace", "low_rank", "pathfinder", "moments" (of the draws, in rounds of training),
      "explore", or an `Affine`.
    - `reference`: the process of the target's prior (`follmer.prior_process`): training steers away
      from it by the likelihood alone, in the process's own coordinates and on its time grid.
    - `chunk_size`: iterations between evaluations of the ELBO, callbacks and checkpoints.
    - `patience`: stop after this many evaluations without a better ELBO, or once the weights are
      even; None never stops early. The drift of the best ELBO is kept.
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
        at_home = isinstance(target, NSFS) or precondition == "identity"
        algorithm.target.check(
            key=check_key,
            scale=float(np.sqrt(algorithm.gamma)),
            tolerated=0.0 if at_home else _RARE,
        )
    training = functools.partial(
        train,
        key=train_key,
        chunk_size=chunk_size,
        patience=patience,
        callbacks=callbacks,
        progress=progress,
    )
    brief = functools.partial(briefly, training)
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
    look_at = None
    whitened = algorithm.target.space.affine is not None
    if whitened and patience is not None and algorithm.batch_size is None:
        # A Gaussian takes one step.
        look_at = algorithm
        if "num_steps" not in options:
            look_at = dataclasses.replace(algorithm, num_steps=1)
    trained = training(algorithm, saved, look_at=look_at)
    posterior = _posterior(trained, start)
    # Where known modes are left out, MCMC from the draws cannot vouch for them.
    if audit and not start.is_partial:
        # Where climbs from many starts led to one mode, more of them would too.
        posterior = posterior.audited(key=audit_key, look_for_modes=not start.has_one_mode)
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


def _posterior(trained: Trained, start: Start) -> Posterior:
    algorithm = trained.algorithm
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
