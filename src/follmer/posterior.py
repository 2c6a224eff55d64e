"""What fit returns: draws, weights, evidence, a summary in words, files."""

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree
from tqdm.auto import tqdm

from follmer import storage
from follmer.checks import as_key, positive_int
from follmer.diagnostics import Diagnostics, diagnose, pareto_smooth
from follmer.errors import InputError, options_checked
from follmer.nsfs import NSFS, Draws
from follmer.summary import summarise
from follmer.targets import Target
from follmer.trees import to_arrays

if TYPE_CHECKING:
    import xarray

FILE_KIND = "posterior"

# Draws made at once; bounds memory, does not change the draws.
_CHUNK = 256


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
    ):
        self.target = target
        self.sampler = sampler
        self.history = dict(history or {})
        self.notes = notes

    @options_checked
    def sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> PyTree:
        """Draws in the target's own space: the tree of `like` with a leading axis.

        `num_steps` may differ from training; more steps discretise less. These draws are
        unweighted: see `log_weights`, `expectation` and `resample` for exact answers.
        """
        return self.weighted_sample(num_samples, key=key, num_steps=num_steps).position

    @options_checked
    def log_weights(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Float[Array, " draws"]:
        """The exact log importance weights of `sample(num_samples, key=key)`; E[exp] = Z."""
        return self._draw(num_samples, key, num_steps)[1]

    @options_checked
    def weighted_sample(
        self, num_samples: int, *, key: PRNGKeyArray, num_steps: int | None = None
    ) -> Draws:
        """Draws and their log weights together."""
        x, log_weights = self._draw(num_samples, key, num_steps)
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
        # Systematic resampling: one uniform, evenly spaced points, least added variance.
        offset = jax.random.uniform(choice_key)
        points = (jnp.arange(num_samples) + offset) / num_samples
        chosen = jnp.searchsorted(jnp.cumsum(weights / jnp.sum(weights)), points)
        chosen = jnp.clip(chosen, 0, weights.size - 1)
        return jax.tree.map(lambda leaf: leaf[chosen], proposals.position)

    @options_checked
    def diagnostics(
        self, *, key: PRNGKeyArray, num_samples: int = 2048, num_steps: int | None = None
    ) -> Diagnostics:
        """ELBO, ln Z with its standard error, ESS and Pareto k̂, from fresh draws."""
        return diagnose(self._draw(num_samples, key, num_steps)[1])

    @options_checked
    def summary(
        self, *, key: PRNGKeyArray, num_samples: int = 2048, num_steps: int | None = None
    ) -> str:
        """The diagnostics and weighted moments in words, ending in a verdict."""
        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        return summarise(self.target.space, draws, self.notes)

    @options_checked
    def to_datatree(
        self, *, key: PRNGKeyArray, num_samples: int = 1000, num_steps: int | None = None
    ) -> "xarray.DataTree":
        """An ArviZ DataTree: `posterior` draws, `sample_stats` with `log_weight`, diagnostics."""
        import arviz_base

        draws = self.weighted_sample(num_samples, key=key, num_steps=num_steps)
        names = [leaf.name for leaf in self.target.space.leaves]
        values = [np.asarray(leaf)[None] for leaf in jax.tree.leaves(draws.position)]
        log_weight = np.asarray(draws.log_weights)[None]
        return arviz_base.from_dict(
            {
                "posterior": dict(zip(names, values, strict=True)),
                "sample_stats": {"log_weight": log_weight},
            },
            attrs={
                "posterior": {"inference_library": "follmer"},
                "sample_stats": diagnose(draws.log_weights)._asdict(),
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
        }
        storage.write(Path(path), FILE_KIND, header, {**self.sampler.arrays(), **history})

    def _draw(
        self, num_samples: int, key: PRNGKeyArray, num_steps: int | None
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Chunks of one size, so that any number of draws compiles once."""
        count = positive_int("num_samples", num_samples)
        if num_steps is not None:
            positive_int("num_steps", num_steps)
        chunk = min(_CHUNK, 1 << (count - 1).bit_length())
        keys = jax.random.split(as_key(key), -(-count // chunk) * chunk)
        parts = []
        bar = tqdm(total=count, desc="sampling", unit="draw", delay=2, leave=False)
        with bar:
            for start in range(0, count, chunk):
                part = _draw(self.sampler, keys[start : start + chunk], num_steps, self.target.data)
                parts.append(jax.block_until_ready(part))
                bar.update(min(chunk, count - start))
        x, log_weights = (jnp.concatenate(columns)[:count] for columns in zip(*parts, strict=True))
        return x, log_weights


@eqx.filter_jit
def _draw(
    sampler: AbstractSampler, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    return sampler.draw(keys, num_steps, data)


@eqx.filter_jit
def _constrain(target: Target, x: Float[Array, "draws dim"]) -> PyTree:
    return jax.vmap(target.constrain)(x)
