"""One call from a target to its posterior: up a ladder of plans, each trained and judged."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray

from follmer.fitting.ladder import climb_ladder, open_checkpoint
from follmer.fitting.request import Callback, as_request, as_schedule
from follmer.nsfs import NSFS
from follmer.posterior.posterior import Posterior
from follmer.targets import AbstractTarget, Affine
from follmer.tools.checks import as_key, options_checked
from follmer.tools.keys import named_key
from follmer.tools.mesh import on_mesh, spread_rows
from follmer.tools.processes import in_agreement, in_step

# Close to the authors' own setting: `fit(target, key=key, **PAPER)`; docs/experiments.md lists what
# differs. It keeps variance `gamma` around a mean and does not reach the posterior; their gamma was
# picked per experiment from .5² … .01².
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
    # Plain Adam: nothing is clipped or averaged. The authors keep the last drift; `fit` keeps that
    # of the best ELBO.
    "clip_norm": 1e9,
    "average_decay": 0.0,
}


@options_checked
def fit(
    target: AbstractTarget | NSFS,
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
    max_seconds: float | None = None,
    mesh: Mesh | str | None = None,
    **options: Any,
) -> Posterior:
    """Reach the posterior and return it: plan, train, judge, until a plan's draws can be used.

    **Arguments:**

    - `target`: what to sample, with NSFS's arguments as further `options`, which stand whatever is
      tried; or an `NSFS`, trained as it is. `gamma="search"` picks one of the paper's, .5² … .01².
    - `precondition`: "auto" climbs to modes from starts near and far, runs Markov chains around
      them and tries in turn "mixture", the closed-form process of a Gaussian mixture fitted to the
      chains; "flow", a drift trained where the target is near N(0, I); "chains", their own draws,
      without weights. For networks with hidden layers it is "ensemble": descents, a chain from each
      end, and a flow along the chains where it predicts as well; it honours `batch_size`, and asked
      for by name `num_iterations`, the steps of a chain. Or one of these alone; or a flow in the
      coordinates of "identity", "prior", "diagonal", "laplace", "explore" (tempered SMC), or of an
      `Affine`. What was tried, and why, is in the posterior's `plan` and notes.
    - `reference`: the process of the target's prior (`follmer.prior_process`): training steers away
      from it by the likelihood alone, in its own coordinates and on its time grid.
    - `chunk_size`: iterations between evaluations of the ELBO, callbacks and checkpoints.
    - `patience`: evaluations without a better ELBO until training stops, if the weights are not
      even before; None never stops early. Ctrl-C does; the drift of the best ELBO is kept.
    - `callbacks`: functions of a `Report`, called after each chunk.
    - `checkpoint`: a folder for the run so far; `resume=True` goes on from there, bit for bit.
    - `check`: evaluate the density and its gradient before anything else (`Target.check`).
    - `audit`: compare draws with Markov chains', else no verdict beats "use the weights".
    - `max_seconds`: nothing new is begun after that; what was reached is judged as it is.
    - `mesh`: devices to run on, side by side: "auto", or a `jax.sharding.Mesh` with axes "paths"
      and "data". The same key gives the same result, to rounding, on any of them (`on_mesh`).
    """
    with contextlib.ExitStack() as stack:
        with in_agreement(mesh is not None) as told:
            stack.enter_context(on_mesh(mesh))
            key = as_key(key)
            request = as_request(target, precondition, reference, options)
            schedule = as_schedule(chunk_size, patience, callbacks, progress, max_seconds)
            spread_rows(request.target.data)
            if in_step():
                told |= request.fingerprint(key, chunk_size)
                told |= {"patience": patience, "check": check, "audit": audit}
                told |= {"checkpoint": checkpoint, "resume": resume, "max_seconds": max_seconds}
        saved = open_checkpoint(checkpoint, resume, request, key, chunk_size)
        if check:
            request.check(named_key(key, "check"))
        return climb_ladder(request, key, schedule, saved, audit=audit)
