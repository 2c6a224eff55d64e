"""What fit returns: draws, weights, evidence, a summary in words, files."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.judging import (
    AnyAudit,
    Audit,
    ChainDiagnostics,
    Diagnostics,
    Judgement,
    PredictiveAudit,
    Verdict,
    compare_answers,
    diagnose,
    diagnose_chains,
    judge,
    pareto_smooth,
)
from follmer.mcmc.resampling import systematic
from follmer.nsfs import Draws
from follmer.posterior.along_chains import ChainFlow
from follmer.posterior.datatree import PROPOSALS, Wanted, datatree, exported
from follmer.posterior.export import check_export, write_draws
from follmer.posterior.prediction import Prediction, answer, as_question
from follmer.posterior.samplers import AbstractSampler, StoredDraws, draws_at_once
from follmer.posterior.structured import StructuredFlow
from follmer.posterior.summary import summarise, summarise_predictions
from follmer.targets import AbstractTarget, as_target, data_digest
from follmer.tools import storage
from follmer.tools.checks import as_key, options_checked, positive_int
from follmer.tools.keys import generator, named_key
from follmer.tools.mesh import on_mesh, spread_rows
from follmer.tools.programs import compiled
from follmer.tools.trees import to_arrays

if TYPE_CHECKING:
    import xarray

FILE_KIND = "posterior"


class Attempt(NamedTuple):
    """One rung of the ladder that was tried: why, with what result, and at what cost."""

    rung: str
    why: str
    verdict: str
    elbo: float
    gradient_evaluations: int
    seconds: float


_LOCALS_AT_ONCE = 2**16


class Posterior:
    """Draws of a target by forward simulation, each with an exact importance weight.

    `sample` and `log_weights` with the same key, number and `num_steps` belong together.
    `history` holds the training curves (empty where nothing was trained), `plan` what was tried to
    reach the posterior, and `audit` what Markov chains say of the draws.

    Behind the same face may stand the stored draws of Markov chains (`follmer.sgld`,
    `follmer.nuts`) or one point (`follmer.sgd`). They have no importance weights and no evidence:
    all draws count equally, and `diagnostics` tells how far the chains agree.
    """

    def __init__(
        self,
        target: AbstractTarget,
        sampler: AbstractSampler,
        history: Mapping[str, np.ndarray] | None = None,
        notes: tuple[str, ...] = (),
        audit: AnyAudit | None = None,
        gradient_evaluations: int | None = None,
        plan: tuple[Attempt, ...] = (),
        progress: bool = True,
        judgement: Judgement | None = None,
    ):
        self.target = target
        self.sampler = sampler
        self.history = dict(history or {})
        self.notes = notes
        self.audit = audit
        self.gradient_evaluations = gradient_evaluations
        self.plan = plan
        self.progress = progress
        self.judgement = judgement

    @property
    def verdict(self) -> Verdict | None:
        """What the draws are good for, judged once when they were made; None if never judged."""
        return None if self.judgement is None else self.judgement.verdict

    def __repr__(self) -> str:
        size = f"{self.target.dim} dimensions"
        judged = [] if self.verdict is None else [self.verdict.value]
        words = [f"{type(self.target).__name__} of {size}", self.sampler.kind, *judged]
        return f"Posterior({', '.join(words)})"

    @options_checked
    def sample(
        self,
        num_samples: int,
        *,
        key: PRNGKeyArray,
        num_steps: int | None = None,
        mesh: Mesh | str | None = None,
    ) -> PyTree:
        """Draws in the target's own space: the tree of `like` (or `outputs`) with a leading axis.

        `num_steps` may differ from training; more steps discretise less. These draws are
        unweighted: see `log_weights`, `expectation` and `resample` for exact answers. With a `mesh`
        of devices they are made side by side (`follmer.on_mesh`), and are the same.
        """
        with on_mesh(mesh):
            return self.weighted_sample(num_samples, key=key, num_steps=num_steps).position

    @options_checked
    def sample_global(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> PyTree:
        """The globals of `sample(num_samples, key=key)` alone; for structured targets."""
        return self._part(num_samples, key, num_steps, np.zeros(0, int), None)["global"]

    @options_checked
    def sample_local(
        self,
        num_samples: int,
        *,
        key: PRNGKeyArray,
        rows: ArrayLike | None = None,
        data: PyTree = None,
        num_steps: int | None = None,
    ) -> PyTree:
        """Locals of chosen data points, or of new ones; for structured targets.

        With `rows`, places of data points among the target's, they are the locals that
        `sample(num_samples, key=key)` holds; with neither, those of all. `data` are data points
        that were not trained on: their locals need no training, and belong to the same globals.
        """
        return self._part(num_samples, key, num_steps, rows, data)["local"]

    @options_checked
    def log_weights(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Float[Array, " draws"]:
        """The exact log importance weights of `sample(num_samples, key=key)`; E[exp] = Z."""
        if isinstance(self.sampler, ChainFlow) and num_steps is None:
            count = positive_int("num_samples", num_samples)
            return self.sampler.log_weights(count, as_key(key), progress=self.progress)
        if not self.sampler.weighs:
            raise InputError(
                "draws of a Markov chain carry no importance weights.",
                cause="the posterior was made by follmer.sgld, sgd or nuts, or of a network",
                hint="sample() or expectation(), where all draws count equally; follmer.fit for "
                "weights and evidence",
            )
        return self.flat_sample(num_samples, key=key, num_steps=num_steps)[1]

    @options_checked
    def weighted_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Draws:
        """Draws and their log weights together; equal ones for draws of Markov chains."""
        x, log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)
        return Draws(self.outputs(x), log_weights)

    @options_checked
    def expectation(
        self,
        function: Callable[[PyTree], PyTree],
        *,
        key: PRNGKeyArray,
        num_samples: int = 4096,
        num_steps: int | None = None,
    ) -> PyTree:
        """Self-normalised, Pareto-smoothed estimate of the posterior mean of `function(theta)`."""
        if not callable(function):
            raise InputError(f"function is {type(function).__name__}, not a function of theta.")
        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        weights = jnp.asarray(np.exp(pareto_smooth(draws.log_weights)[0]), self.target.dtype)
        values = jax.vmap(function)(draws.position)
        return jax.tree.map(lambda value: jnp.tensordot(weights, value, 1), values)

    @options_checked
    def resample(
        self,
        num_samples: int,
        *,
        key: PRNGKeyArray,
        num_proposals: int | None = None,
        num_steps: int | None = None,
    ) -> PyTree:
        """Unweighted draws chosen from weighted ones (`num_proposals`, by default 4 times as many).

        Removes the bias of plain draws where the weights are sound; draws may repeat. Without
        weights to choose by, it is `sample`.
        """
        num_samples = positive_int("num_samples", num_samples)
        if num_proposals is None:
            num_proposals = PROPOSALS * num_samples
        positive_int("num_proposals", num_proposals)
        if not self.sampler.weighs:
            return self.sample(num_samples, key=key, num_steps=num_steps)
        draw_key = named_key(as_key(key), "proposals")
        proposals = self.weighted_sample(num_proposals, key=draw_key, num_steps=num_steps)
        weights = np.exp(pareto_smooth(proposals.log_weights)[0])
        chosen = systematic(generator(as_key(key), "choice"), weights, num_samples)
        return jax.tree.map(lambda leaf: leaf[chosen], proposals.position)

    @options_checked
    def predict(
        self,
        x: ArrayLike,
        *,
        key: PRNGKeyArray,
        num_samples: int = 256,
        num_steps: int | None = None,
        batch_size: int = 65536,
        weighted: bool = False,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        y: ArrayLike | None = None,
        mesh: Mesh | str | None = None,
        calibrated: bool = True,
    ) -> Prediction:
        """The predictive distribution of y at rows x, for targets that say how y is distributed.

        Averages over the draws of `sample(num_samples, key=key)`: plainly, or by their
        Pareto-smoothed importance weights where `weighted`. With `y`, the log predictive density of
        every row comes too.

        A network's draws together are often less sure than they might be. Where its fit was
        audited, quantiles and the log predictive density of a continuous y are those of the draws'
        average sharpened, or widened, as training rows that are left out would have it
        (`audit.sharpness`; mean and sd are the draws' own). `calibrated=False` leaves the average
        as it is.

        `batch_size` bounds memory and leaves the answer alone: so many pairs of a draw and a row
        are held at once by a device, beside the draws and what is returned. With a `mesh` of
        devices, draws and then rows are spread over them (`follmer.on_mesh`).
        """
        target = as_target(self.target)
        question = as_question(target, x, y, quantiles, batch_size)
        if calibrated and isinstance(self.audit, PredictiveAudit):
            question = question.calibrated(self.audit.sharpness)
        with on_mesh(mesh):
            draws, log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)
            even = np.full(num_samples, -np.log(num_samples))
            logs = pareto_smooth(log_weights)[0] if weighted else even
            thetas = _parameters(self._coordinates, draws)
            weights = jnp.asarray(logs, target.dtype)
            return answer(question, thetas, weights, progress=self.progress)

    @options_checked
    def diagnostics(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, num_steps: int | None = None
    ) -> Diagnostics | ChainDiagnostics:
        """ELBO, ln Z with its standard error, ESS and Pareto k̂, from fresh draws.

        Of Markov chains: R-hat and ESS, from all stored draws. 2048 draws by default; fewer where
        each has many locals.
        """
        count = self.sampler.draws_judged if num_samples is None else num_samples
        return self.diagnosed(self.flat_sample(count, key=key, num_steps=num_steps)[1])

    def with_notes(self, *notes: str) -> "Posterior":
        """The same posterior with more notes."""
        return self._changed(notes=(*self.notes, *notes))

    def with_notes_first(self, *notes: str) -> "Posterior":
        """The same posterior with notes before its others."""
        return self._changed(notes=(*notes, *self.notes))

    def with_audit(self, audit: AnyAudit) -> "Posterior":
        """The same posterior with what Markov chains say of its draws."""
        return self._changed(audit=audit)

    def with_judgement(self, judgement: Judgement) -> "Posterior":
        """The same posterior with what its draws are good for."""
        return self._changed(judgement=judgement)

    def with_plan(self, plan: tuple[Attempt, ...], gradient_evaluations: int) -> "Posterior":
        """The same posterior with what was tried to reach it, and what all of it cost."""
        return self._changed(plan=plan, gradient_evaluations=gradient_evaluations)

    @options_checked
    def summary(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, num_steps: int | None = None
    ) -> str:
        """Weighted and plain moments and the diagnostics in words, ending in a verdict.

        The verdict is that of the fit; where fresh draws by `key` would be judged otherwise, a line
        says so. Of a network, how it predicts.
        """
        if isinstance(self.audit, PredictiveAudit):
            return summarise_predictions(self.audit, judge(None, self.audit), self.notes)
        count = self.sampler.draws_judged if num_samples is None else num_samples
        draws = self.weighted_sample(count, key=key, num_steps=num_steps)
        found = self.diagnosed(draws.log_weights)
        answers = compare_answers(draws.position, np.asarray(draws.log_weights, float))
        fresh = judge(found, self.audit, answers if self.sampler.weighs else None)
        # What was judged when the draws were made stands; fresh draws only look again.
        judged = fresh if num_steps is not None else self.judgement or fresh
        return summarise(draws, found, judged, fresh, self.notes, self.audit)

    @options_checked
    def to_datatree(
        self,
        *,
        key: PRNGKeyArray,
        num_samples: int | None = None,
        num_steps: int | None = None,
        resampled: bool | None = None,
        log_likelihood: bool = False,
        posterior_predictive: bool = False,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Any] | None = None,
    ) -> "xarray.DataTree":
        """An ArviZ DataTree: draws, diagnostics, the data, and what the draws say of the data.

        **Arguments:**

        - `num_samples`: 1000 draws by default. Of Markov chains, all that are stored, or evenly
          spaced ones, by chain and without weights. Where chains have shares, as those of a
          network, draws are chosen by them and stand as one chain; with `resampled=False` by chain,
          with the `log_weight` that they need.
        - `resampled`: choose the draws by weight from 4 times as many, as `resample` does, so that
          what knows nothing of weights (`arviz_stats.summary`, `loo`, …) is right; their
          `log_weight` is then 0. False keeps the draws of `sample` with the `log_weight` that they
          need. By default draws are chosen where the weights are sound (k̂ up to 0.7) and the target
          has no locals; the attribute `resampled` of `sample_stats` tells.
        - `log_likelihood`, `posterior_predictive`: the log likelihood of every observation, which
          `arviz_stats.loo` needs, and new observations, at each draw.
        - `dims`, `coords`: names of a variable's axes and of the places along them, as ArviZ takes
          them, beside those that a NumPyro or PyMC model brings.

        `sample_stats` holds `log_weight` and `lp`, the log density in unconstrained coordinates.
        """
        wanted = Wanted(log_likelihood, posterior_predictive, dims or {}, coords or {})
        count = None if num_samples is None else positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        key = as_key(key)
        if resampled is None and self.target.has_locals:
            # Of many variables' weights one is always the largest by far.
            resampled = False
        draws = exported(self.sampler, count, key, num_steps, resampled, progress=self.progress)
        return datatree(
            self._coordinates,
            draws,
            self.outputs(draws.flat),
            self.diagnosed(draws.judged)._asdict(),
            wanted,
            key,
            weighs=self.sampler.weighs,
            progress=self.progress,
        )

    @options_checked
    def export(self, path: str | Path, *, key: PRNGKeyArray, **options: Any) -> None:
        """Write the draws of `to_datatree(key=key, **options)` to a file of another format.

        By the path's suffix: netCDF (.nc), which holds the whole DataTree; or Parquet (.parquet),
        one row per draw and one column per number, with `log_weight` and `lp`. Whole or not at all.
        """
        path = Path(path)
        check_export(path)
        write_draws(self.to_datatree(key=key, **options), path)

    @options_checked
    def save(self, path: str | Path) -> None:
        """Write settings (JSON), arrays and history to one file; `follmer.load` reads it back."""
        storage.write(Path(path), FILE_KIND, *self.stored())

    def stored(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What a file holds: settings, as JSON has them, and arrays."""
        history = {f"history_{name}": values for name, values in self.history.items()}
        header = {
            "sampler": self.sampler.kind,
            "settings": self.sampler.describe(),
            "space": self.target.describe(),
            "data": data_digest(self.target.given),
            "notes": list(self.notes),
            "audit": self.audit and self.audit._asdict(),
            "judgement": self.judgement and [self.judgement.name, self.judgement.advice],
            "gradient_evaluations": self.gradient_evaluations,
            "plan": [attempt._asdict() for attempt in self.plan],
        }
        affine = to_arrays(self._coordinates.affine, "affine")
        return header, {**self.sampler.arrays(), **history, **affine}

    @property
    def _coordinates(self) -> AbstractTarget:
        """The target in the coordinates of the draws."""
        return self.sampler.coordinates(self.target)

    def outputs(self, x: Float[Array, "draws dim"]) -> PyTree:
        """Flat draws in the target's own space."""
        target, count = self._coordinates, len(x)
        chunk = min(draws_at_once(target.gradient_cost, count), 1 << (count - 1).bit_length())
        if target.has_locals or count == chunk:
            return _constrain(target, x, None)
        # Chunks of one size, so that any number of draws compiles once.
        rows = np.minimum(np.arange(-(-count // chunk) * chunk), count - 1).reshape(-1, chunk)
        flat = np.asarray(x)
        parts = [_constrain(target, jnp.asarray(flat[some]), None) for some in rows]
        return jax.tree.map(lambda *pieces: jnp.asarray(np.concatenate(pieces)[:count]), *parts)

    def diagnosed(
        self, log_weights: Float[Array | np.ndarray, " draws"]
    ) -> Diagnostics | ChainDiagnostics:
        """All diagnostics, given the log weights of draws."""
        sampler = self.sampler
        if isinstance(sampler, StoredDraws | ChainFlow):
            return diagnose_chains(
                sampler.draws, exact=sampler.exact, divergences=sampler.divergences
            )
        eubo = self.audit.eubo if isinstance(self.audit, Audit) else float("nan")
        return diagnose(log_weights, eubo)

    def _changed(self, **changes: Any) -> "Posterior":
        new = copy.copy(self)
        vars(new).update(changes)
        return new

    def _part(
        self,
        num_samples: int,
        key: PRNGKeyArray,
        num_steps: int | None,
        rows: ArrayLike | None,
        data: PyTree,
    ) -> dict[str, PyTree]:
        """Globals and some locals."""
        sampler = self.sampler
        if not isinstance(sampler, StructuredFlow):
            raise InputError(
                "only structured targets have global and local variables.",
                hint="sample(); or follmer.fit of a follmer.StructuredTarget",
            )
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        target: Any = self._coordinates
        chosen, places = target.chosen_rows(rows, data, progress=self.progress)
        x, _ = sampler.sample_rows(
            count, as_key(key), num_steps, chosen, places, progress=self.progress
        )
        return _constrain(target, x, chosen)

    def flat_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws in the process's own flat coordinates, and their log weights."""
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        key = as_key(key)
        spread_rows(self.target.data)
        return self.sampler.sample(count, key, num_steps, progress=self.progress)


@compiled
def _constrain(target: AbstractTarget, x: Float[Array, "draws dim"], batch: PyTree) -> PyTree:
    if not target.has_locals:
        return jax.vmap(target.constrain)(x)
    # Locals are placed by their densities' curvature: so many at a time as memory allows.
    at_once = max(1, _LOCALS_AT_ONCE // max(1, target.num_rows(batch) or 1))
    return jax.lax.map(lambda x: target.constrain(x, batch), x, batch_size=at_once)


@compiled
def _parameters(target: AbstractTarget, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.vmap(as_target(target).parameters)(x)
