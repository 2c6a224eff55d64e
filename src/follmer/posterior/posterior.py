"""What fit returns: draws, weights, evidence, a summary in words, files."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError, options_checked
from follmer.judging.audit import is_affordable, precision_note, second_opinion
from follmer.judging.diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    Opinion,
    pareto_smooth,
)
from follmer.mcmc.resampling import systematic
from follmer.nsfs import Draws
from follmer.posterior.prediction import Prediction, answer, as_question
from follmer.posterior.samplers import AbstractSampler, Flow
from follmer.posterior.structured import StructuredFlow, local_opinion
from follmer.posterior.summary import summarise
from follmer.targets import StructuredTarget, Target, as_target
from follmer.targets.space import named_leaves
from follmer.tools import storage
from follmer.tools.checks import as_key, positive_int
from follmer.tools.trees import to_arrays

if TYPE_CHECKING:
    import xarray

FILE_KIND = "posterior"
_LOCALS_AT_ONCE = 2**16


class Posterior:
    """Draws of a target by forward simulation, each with an exact importance weight.

    `sample` and `log_weights` with the same key, number and `num_steps` belong together.
    `history` holds the training curves (empty where nothing was trained).

    Behind the same face may stand the stored draws of Markov chains (`follmer.sgld`,
    `follmer.nuts`) or one point (`follmer.sgd`). They have no importance weights and no evidence:
    all draws count equally, and `diagnostics` tells how far the chains agree.
    """

    def __init__(
        self,
        target: Target | StructuredTarget,
        sampler: AbstractSampler,
        history: Mapping[str, np.ndarray] | None = None,
        notes: tuple[str, ...] = (),
        second_opinion: Opinion | None = None,
        gradient_evaluations: int | None = None,
    ):
        self.target = target
        self.sampler = sampler
        self.history = dict(history or {})
        self.notes = notes
        self.second_opinion = second_opinion
        self.gradient_evaluations = gradient_evaluations

    @options_checked
    def sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> PyTree:
        """Draws in the target's own space: the tree of `like` (or `outputs`) with a leading axis.

        `num_steps` may differ from training; more steps discretise less. These draws are
        unweighted: see `log_weights`, `expectation` and `resample` for exact answers.
        """
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
        if not self.sampler.weighs:
            raise InputError(
                "draws of a Markov chain carry no importance weights.",
                cause="the posterior was made by follmer.sgld, sgd or nuts",
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
        return Draws(_constrain(self.target, x, self.target.data), log_weights)

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
            num_proposals = 4 * num_samples
        positive_int("num_proposals", num_proposals)
        if not self.sampler.weighs:
            return self.sample(num_samples, key=key, num_steps=num_steps)
        draw_key, choice_key = jax.random.split(as_key(key))
        proposals = self.weighted_sample(num_proposals, key=draw_key, num_steps=num_steps)
        weights = jnp.asarray(np.exp(pareto_smooth(proposals.log_weights)[0]))
        chosen = systematic(choice_key, weights, num_samples)
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
    ) -> Prediction:
        """The predictive distribution of y at rows x, for targets that say how y is distributed.

        Averages over the draws of `sample(num_samples, key=key)`: plainly, or by their
        Pareto-smoothed importance weights where `weighted`. With `y`, the log predictive density of
        every row comes too.

        `batch_size` bounds memory and leaves the answer alone: so many pairs of a draw and a row
        are held at once, beside the draws and what is returned.
        """
        target = as_target(self.target)
        question = as_question(target, x, y, quantiles, batch_size)
        draws, log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)
        even = np.full(num_samples, -np.log(num_samples))
        logs = pareto_smooth(log_weights)[0] if weighted else even
        thetas = _parameters(target, draws)
        return answer(question, thetas, jnp.asarray(logs, target.dtype))

    @options_checked
    def diagnostics(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, num_steps: int | None = None
    ) -> Diagnostics | ChainDiagnostics:
        """ELBO, ln Z with its standard error, ESS and Pareto k̂, from fresh draws.

        Of Markov chains: R-hat and ESS, from all stored draws. 2048 draws by default; fewer where
        each has many locals.
        """
        num_samples = self._diagnosed(num_samples)
        log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)[1]
        return self.sampler.diagnose(log_weights, self.second_opinion)

    @options_checked
    def audited(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, look_for_modes: bool = True
    ) -> "Posterior":
        """The same posterior with a second opinion: its draws moved by MCMC and weighed again.

        With `look_for_modes`, climbs also look for modes that no draw is near. Where the moves
        would cost too much (or nothing was trained) there is no opinion; of very many locals, some
        are judged one by one instead. A note is added where single precision is too coarse for the
        density.
        """
        draw_key, move_key, line_key = jax.random.split(as_key(key), 3)
        found: Opinion | None = None
        notes = self.notes
        affordable = is_affordable(self.target)
        if isinstance(self.sampler, StructuredFlow) and not affordable:
            found = local_opinion(self.sampler, move_key)
        elif isinstance(self.sampler, Flow | StructuredFlow):
            num_samples = self._diagnosed(num_samples)
            x, log_weights = self.flat_sample(num_samples, key=draw_key)
            algorithm, parameters = self.sampler.algorithm, self.sampler.parameters
            if affordable:
                found = second_opinion(
                    algorithm, parameters, x, log_weights, move_key, look_for_modes=look_for_modes
                )
            note = precision_note(self.target, x, line_key)
            notes = notes if note is None else (*notes, note)
        return self.retold(notes=notes, second_opinion=found)

    def retold(self, **changes: Any) -> "Posterior":
        """The same draws with other `notes`, `second_opinion` or `gradient_evaluations`."""
        kept = {
            "notes": self.notes,
            "second_opinion": self.second_opinion,
            "gradient_evaluations": self.gradient_evaluations,
        }
        return Posterior(self.target, self.sampler, self.history, **{**kept, **changes})

    @options_checked
    def summary(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, num_steps: int | None = None
    ) -> str:
        """The diagnostics and weighted moments in words, ending in a verdict."""
        num_samples = self._diagnosed(num_samples)
        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        found = self.sampler.diagnose(draws.log_weights, self.second_opinion)
        return summarise(draws, found, self.notes, self.second_opinion)

    @options_checked
    def to_datatree(
        self, *, key: PRNGKeyArray, num_samples: int | None = None, num_steps: int | None = None
    ) -> "xarray.DataTree":
        """An ArviZ DataTree: `posterior` draws, `sample_stats` with `log_weight`, diagnostics.

        1000 draws by default. Of Markov chains, all that are stored, or evenly spaced ones, by
        chain and without weights.
        """
        import arviz_base

        if num_samples is not None:
            positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        x, log_weight = self.sampler.by_chain(num_samples, as_key(key), num_steps, self.target.data)
        position = _constrain(self.target, x.reshape(-1, self.target.dim), self.target.data)
        found = self.sampler.diagnose(log_weight.ravel(), self.second_opinion)
        groups = {
            "posterior": {
                name: np.asarray(leaf).reshape(*log_weight.shape, *leaf.shape[1:])
                for name, leaf in named_leaves(position)
            }
        }
        attributes = {"posterior": {"inference_library": "follmer"}}
        if self.sampler.weighs:
            groups["sample_stats"] = {"log_weight": np.asarray(log_weight)}
            attributes["sample_stats"] = found._asdict()
        else:
            # Files of ArviZ hold no truth values.
            attributes["posterior"] |= {name: +value for name, value in found._asdict().items()}
        with warnings.catch_warnings():
            # Few draws of many chains are no mistake.
            warnings.filterwarnings("ignore", "Found chain dimension to be longer")
            return arviz_base.from_dict(groups, attrs=attributes)

    @options_checked
    def save(self, path: str | Path) -> None:
        """Write settings (JSON), arrays and history to one file; `follmer.load` reads it back."""
        history = {f"history_{name}": values for name, values in self.history.items()}
        header = {
            "sampler": self.sampler.kind,
            "settings": self.sampler.describe(),
            "space": self.target.space.describe(),
            "notes": list(self.notes),
            "second_opinion": self.second_opinion and self.second_opinion._asdict(),
            "gradient_evaluations": self.gradient_evaluations,
        }
        affine = to_arrays(self.target.space.affine, "affine")
        arrays = {**self.sampler.arrays(), **history, **affine}
        storage.write(Path(path), FILE_KIND, header, arrays)

    def _diagnosed(self, num_samples: int | None) -> int:
        return self.sampler.draws_diagnosed if num_samples is None else num_samples

    def _part(
        self,
        num_samples: int,
        key: PRNGKeyArray,
        num_steps: int | None,
        rows: ArrayLike | None,
        data: PyTree,
    ) -> dict[str, PyTree]:
        """Globals and some locals."""
        sampler, target = self.sampler, self.target
        if not (isinstance(sampler, StructuredFlow) and isinstance(target, StructuredTarget)):
            raise InputError(
                "only structured targets have global and local variables.",
                hint="sample(); or follmer.fit of a follmer.StructuredTarget",
            )
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        chosen, places = target.chosen_rows(rows, data)
        x, _ = sampler.sample_rows(count, as_key(key), num_steps, chosen, places)
        return _constrain(target, x, chosen)

    def flat_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws in the process's own flat coordinates, and their log weights."""
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        return self.sampler.sample(count, as_key(key), num_steps, self.target.data)


@eqx.filter_jit
def _constrain(
    target: Target | StructuredTarget, x: Float[Array, "draws dim"], data: PyTree
) -> PyTree:
    if isinstance(target, StructuredTarget):
        # Locals are placed by their densities' curvature: so many at a time as memory allows.
        at_once = max(1, _LOCALS_AT_ONCE // max(1, data.features.shape[0]))
        return jax.lax.map(lambda x: target.constrain(x, data), x, batch_size=at_once)
    return jax.vmap(lambda x: target.constrain(x, data))(x)


@eqx.filter_jit
def _parameters(target: Target, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.vmap(target.space.constrain)(x)
