"""What stands behind a posterior: draws simulated afresh, or stored ones."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree
from tqdm.auto import tqdm

from follmer.errors import InputError
from follmer.judging.diagnostics import (
    ChainDiagnostics,
    Diagnostics,
    Opinion,
    diagnose,
    diagnose_chains,
)
from follmer.mcmc.resampling import evenly
from follmer.nsfs import NSFS
from follmer.tools.trees import to_arrays

# Draws made at once; bounds memory, does not change the draws.
DRAWS_AT_ONCE = 256
# Independent draws put in a DataTree where no number is given.
DRAWS_EXPORTED = 1000


class AbstractSampler(eqx.Module):
    """What stands behind a posterior: unconstrained draws, simulated or stored."""

    kind: eqx.AbstractClassVar[str]
    weighs: eqx.AbstractClassVar[bool]  # whether draws carry exact importance weights

    @property
    def draws_diagnosed(self) -> int:
        """Draws from which quality is judged where no number is given."""
        return 2048

    @abc.abstractmethod
    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws and log weights; equal ones where the sampler does not weigh."""

    @abc.abstractmethod
    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        """About `count` draws in the order in which they were made."""

    @abc.abstractmethod
    def diagnose(
        self, log_weights: Float[Array, " draws"], second: Opinion | None
    ) -> Diagnostics | ChainDiagnostics:
        """What the weights of a sample, or the stored chains, say of the draws' quality."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Settings that a file keeps."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays that a file keeps."""


class AbstractWeighted(AbstractSampler):
    """A sampler of independent draws with exact weights."""

    weighs: ClassVar[bool] = True

    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        x, log_weights = self.sample(count or DRAWS_EXPORTED, key, num_steps, data)
        return x[None], log_weights[None]

    def diagnose(self, log_weights: Float[Array, " draws"], second: Opinion | None) -> Diagnostics:
        return diagnose(log_weights, second)


class AbstractSimulator(AbstractWeighted):
    """A sampler that simulates one weighted draw per key."""

    @abc.abstractmethod
    def draw(
        self, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Draws and log weights; a pure function, compiled by `draw` below."""

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        # Chunks of one size, so that any number of draws compiles once.
        chunk = min(DRAWS_AT_ONCE, 1 << (count - 1).bit_length())
        keys = jax.random.split(key, -(-count // chunk) * chunk)
        parts = []
        with tqdm(total=count, desc="sampling", unit="draw", delay=2, leave=False) as bar:
            for start in range(0, count, chunk):
                part = draw(self, keys[start : start + chunk], num_steps, data)
                parts.append(jax.block_until_ready(part))
                bar.update(min(chunk, count - start))
        x, log_weights = (jnp.concatenate(columns)[:count] for columns in zip(*parts, strict=True))
        return x, log_weights


class Flow(AbstractSimulator):
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
        reference = self.algorithm.reference
        frozen = {} if reference is None else to_arrays(reference.parameters, "reference")
        return to_arrays(self.parameters, "parameter") | frozen


class StoredDraws(AbstractSampler):
    """Draws of Markov chains, or one point: a sample uses each as often as any other can be.

    `method` made them; `exact` says whether its kernel leaves the target as it is, so that chains
    which agree can be believed.
    """

    draws: Float[np.ndarray, "chains draws dim"]
    method: str
    exact: bool
    divergences: int = 0
    kind: ClassVar[str] = "chains"
    weighs: ClassVar[bool] = False

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        self._refuse_steps(num_steps)
        row_key, order_key = jax.random.split(key)
        pooled = self.draws.reshape(-1, self.draws.shape[-1])
        # Shuffled, so that any part of a sample is as good as another.
        rows = jax.random.permutation(order_key, evenly(row_key, len(pooled), count))
        x = jnp.asarray(pooled[np.asarray(rows)])
        return x, jnp.zeros(count, x.dtype)

    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        self._refuse_steps(num_steps)
        x = self.draws
        num_chains, length, _ = x.shape
        if count is not None and count < num_chains * length:
            x = x[:, evenly(key, length, -(-count // num_chains))]
        return jnp.asarray(x), jnp.zeros(x.shape[:2], x.dtype)

    def diagnose(
        self, log_weights: Float[Array, " draws"], second: Opinion | None
    ) -> ChainDiagnostics:
        return diagnose_chains(self.draws, exact=self.exact, divergences=self.divergences)

    def describe(self) -> dict[str, Any]:
        return {"method": self.method, "exact": self.exact, "divergences": self.divergences}

    def arrays(self) -> dict[str, np.ndarray]:
        return {"draws": self.draws}

    def _refuse_steps(self, num_steps: int | None) -> None:
        if num_steps is not None:
            raise InputError(
                f"num_steps was given, but the draws of {self.method} are stored already.",
                hint="num_steps= is for samplers that simulate, follmer.fit and follmer.mc_sfs",
            )


@eqx.filter_jit
def draw(
    sampler: AbstractSimulator, keys: Key[Array, " draws"], num_steps: int | None, data: PyTree
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    """The sampler's draws, compiled once for each number of keys."""
    return sampler.draw(keys, num_steps, data)
