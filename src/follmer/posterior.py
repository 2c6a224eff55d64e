"""What fit returns: draws, weights, evidence, a summary in words, files."""

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree
from tqdm.auto import tqdm

from follmer import storage
from follmer.audit import second_opinion
from follmer.checks import as_key, positive_int
from follmer.diagnostics import Diagnostics, SecondOpinion, diagnose, pareto_smooth
from follmer.errors import InputError, options_checked
from follmer.nsfs import NSFS, Draws
from follmer.prediction import Prediction, answer, as_question
from follmer.resampling import systematic
from follmer.summary import summarise
from follmer.targets import Target
from follmer.targets.space import named_leaves
from follmer.trees import to_arrays

if TYPE_CHECKING:
    import xarray

FILE_KIND = "posterior"

# Draws made at once; bounds memory, does not change the draws.
DRAWS_AT_ONCE = 256


class AbstractSampler(eqx.Module):
    """What stands behind a posterior: one weighted, unconstrained draw per key."""

    kind: eqx.AbstractClassVar[str]

    @abc.abstractmethod
    def draw(
        self, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws and log weights; a pure function, compiled by the posterior."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Settings that a file keeps."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays that a file keeps."""


class Flow(AbstractSampler):
    """A trained N-SFS: the algorithm and its drift's parameters."""

    algorithm: NSFS
    parameters: PyTree
    kind: ClassVar[str] = "nsfs"

    def draw(
        self, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        return self.algorithm.simulate(self.parameters, keys, num_steps, data)

    def describe(self) -> dict[str, Any]:
        return self.algorithm.describe()

    def arrays(self) -> dict[str, np.ndarray]:
        return to_arrays(self.parameters, "parameter")


class Posterior:
    """Draws of a target by forward simulation, each with an exact importance weight.

    `sample` and `log_weights` with the same key, number and `num_steps` belong together.
    `history` holds the training curves (empty where nothing was trained).
    """

    def __init__(
        self,
        target: Target,
        sampler: AbstractSampler,
        history: Mapping[str, np.ndarray] | None = None,
        notes: tuple[str, ...] = (),
        second_opinion: SecondOpinion | None = None,
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
    def log_weights(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Float[Array, " draws"]:
        """The exact log importance weights of `sample(num_samples, key=key)`; E[exp] = Z."""
        return self.flat_sample(num_samples, key=key, num_steps=num_steps)[1]

    @options_checked
    def weighted_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Draws:
        """Draws and their log weights together."""
        x, log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)
        return Draws(_constrain(self.target, x), log_weights)

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

        Removes the bias of plain draws where the weights are sound; draws may repeat.
        """
        num_samples = positive_int("num_samples", num_samples)
        if num_proposals is None:
            num_proposals = 4 * num_samples
        positive_int("num_proposals", num_proposals)
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
        question = as_question(self.target, x, y, quantiles, batch_size)
        draws, log_weights = self.flat_sample(num_samples, key=key, num_steps=num_steps)
        even = np.full(num_samples, -np.log(num_samples))
        logs = pareto_smooth(log_weights)[0] if weighted else even
        thetas = _parameters(self.target, draws)
        return answer(question, thetas, jnp.asarray(logs, self.target.dtype))

    @options_checked
    def diagnostics(
        self, *, key: PRNGKeyArray, num_samples: int = 2048, num_steps: int | None = None
    ) -> Diagnostics:
        """ELBO, ln Z with its standard error, ESS and Pareto k̂, from fresh draws."""
        log_weights = self.log_weights(num_samples, key=key, num_steps=num_steps)
        return diagnose(log_weights, self.second_opinion)

    @options_checked
    def audited(self, *, key: PRNGKeyArray, num_samples: int = 2048) -> "Posterior":
        """The same posterior with a second opinion: its draws moved by MCMC and weighed again.

        Where the moves would cost too much (or nothing was trained) there is none.
        """
        draw_key, move_key = jax.random.split(as_key(key))
        found = None
        if isinstance(self.sampler, Flow):
            x, log_weights = self.flat_sample(num_samples, key=draw_key)
            algorithm, parameters = self.sampler.algorithm, self.sampler.parameters
            found = second_opinion(algorithm, parameters, x, log_weights, move_key)
        return Posterior(
            self.target, self.sampler, self.history, self.notes, found, self.gradient_evaluations
        )

    @options_checked
    def summary(
        self, *, key: PRNGKeyArray, num_samples: int = 2048, num_steps: int | None = None
    ) -> str:
        """The diagnostics and weighted moments in words, ending in a verdict."""
        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        return summarise(draws, self.notes, self.second_opinion)

    @options_checked
    def to_datatree(
        self, *, key: PRNGKeyArray, num_samples: int = 1000, num_steps: int | None = None
    ) -> "xarray.DataTree":
        """An ArviZ DataTree: `posterior` draws, `sample_stats` with `log_weight`, diagnostics."""
        import arviz_base

        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        values = {name: np.asarray(leaf)[None] for name, leaf in named_leaves(draws.position)}
        log_weight = np.asarray(draws.log_weights)[None]
        return arviz_base.from_dict(
            {
                "posterior": values,
                "sample_stats": {"log_weight": log_weight},
            },
            attrs={
                "posterior": {"inference_library": "follmer"},
                "sample_stats": diagnose(draws.log_weights, self.second_opinion)._asdict(),
            },
        )

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

    def flat_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws in the process's own flat coordinates, and their log weights."""
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        # Chunks of one size, so that any number of draws compiles once.
        chunk = min(DRAWS_AT_ONCE, 1 << (count - 1).bit_length())
        keys = jax.random.split(as_key(key), -(-count // chunk) * chunk)
        parts = []
        bar = tqdm(total=count, desc="sampling", unit="draw", delay=2, leave=False)
        with bar:
            for start in range(0, count, chunk):
                part = draw(self.sampler, keys[start : start + chunk], num_steps, self.target.data)
                parts.append(jax.block_until_ready(part))
                bar.update(min(chunk, count - start))
        x, log_weights = (jnp.concatenate(columns)[:count] for columns in zip(*parts, strict=True))
        return x, log_weights


@eqx.filter_jit
def draw(
    sampler: AbstractSampler, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    """The sampler's draws, compiled once for each number of keys."""
    return sampler.draw(keys, num_steps, data)


@eqx.filter_jit
def _constrain(target: Target, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.vmap(target.constrain)(x)


@eqx.filter_jit
def _parameters(target: Target, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.vmap(target.space.constrain)(x)
