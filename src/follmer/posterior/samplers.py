"""What stands behind a posterior: draws simulated afresh, or stored ones."""

import abc
import hashlib
import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from follmer.drifts import GaussianMixture, ProductMixture
from follmer.errors import InputError
from follmer.mcmc.resampling import evenly, systematic
from follmer.paths import Move
from follmer.process import Process
from follmer.targets import AbstractTarget
from follmer.tools.keys import KeyRows, as_keys, generator, key_rows
from follmer.tools.mesh import PATHS, over, width
from follmer.tools.programs import bound, compiled
from follmer.tools.progress import Bar
from follmer.tools.trees import to_arrays

# Draws made at once by each device; bounds memory, does not change the draws.
DRAWS_AT_ONCE = 256
# From so many draws on, up to so many at once while they take so many operations: a program that is
# called less often is 2.4 × as fast (10⁶ draws of a regression, 200 × 10), and is another program.
_IN_BULK, _MOST_AT_ONCE, _OPERATIONS_AT_ONCE = 16384, 4096, 5e8
# Independent draws put in a DataTree where no number is given.
DRAWS_EXPORTED = 1000

# Operations that judging draws of a closed form may take: a second.
_JUDGING = 1e10

# Draws in flat coordinates and their log weights.
Weighted = tuple[Float[Array, "draws dim"], Float[Array, " draws"]]


def draws_at_once(operations: float, count: int) -> int:
    """Where each takes so many operations: a power of two, the same for any usual number."""
    if count < _IN_BULK:
        return DRAWS_AT_ONCE
    affordable = int(_OPERATIONS_AT_ONCE / max(operations, 1.0))
    return max(DRAWS_AT_ONCE, min(_MOST_AT_ONCE, 1 << max(affordable.bit_length() - 1, 0)))


class AbstractSampler(eqx.Module):
    """What stands behind a posterior: unconstrained draws, simulated or stored."""

    kind: eqx.AbstractClassVar[str]
    weighs: eqx.AbstractClassVar[bool]  # whether draws carry exact importance weights

    @property
    def draws_judged(self) -> int:
        """Draws from which quality is judged where no number is given."""
        return 2048

    def coordinates(self, target: AbstractTarget) -> AbstractTarget:
        """The target in the coordinates of the draws."""
        return target

    @abc.abstractmethod
    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> Weighted:
        """Draws and log weights; equal ones where the sampler does not weigh."""

    @abc.abstractmethod
    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        """About `count` draws in the order in which they were made."""

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
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        x, log_weights = self.sample(count or DRAWS_EXPORTED, key, num_steps, progress=progress)
        return x[None], log_weights[None]


class AbstractSimulator(AbstractWeighted):
    """A sampler that simulates one weighted draw per key."""

    def at_once(self, count: int) -> int:
        """Draws made at once by each device, where so many are wanted."""
        return DRAWS_AT_ONCE

    @abc.abstractmethod
    def draw(self, keys: Key[Array, " draws"], num_steps: int | None) -> Weighted:
        """Draws and log weights; a pure function, compiled by `draw` below."""

    @abc.abstractmethod
    def log_weights_to(
        self, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        """Log weights of paths to given ends; over draws of the target their mean is the EUBO."""

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> Weighted:
        draws, at_once = bound(draw, self, num_steps=num_steps), self.at_once(count)
        x, log_weights = in_chunks_of_keys(draws, count, key, at_once, progress=progress)
        return x, log_weights


def in_chunks_of_keys(
    draws: Callable[[KeyRows], tuple[Array, ...]],
    count: int,
    key: PRNGKeyArray,
    at_once: int = DRAWS_AT_ONCE,
    *,
    progress: bool,
) -> list[Array]:
    """What `draws` makes of keys, some at a time: of one size, so that any number compiles once."""
    chunk = min(width(PATHS) * at_once, 1 << (count - 1).bit_length())
    keys = key_rows(key, -(-count // chunk) * chunk)
    parts = []
    with Bar(count, visible=progress, name="sampling", unit="draw", late=True) as bar:
        for start in range(0, count, chunk):
            parts.append(draws(keys[start : start + chunk]))
            jax.block_until_ready(parts[-1])
            bar.advance(min(chunk, count - start))
    columns = zip(*parts, strict=True)
    return [jax.device_put(np.concatenate(column)[:count]) for column in columns]


class Flow(AbstractSimulator):
    """A trained N-SFS: the process and its drift's parameters."""

    process: Process
    parameters: PyTree
    kind: ClassVar[str] = "nsfs"

    def coordinates(self, target: AbstractTarget) -> AbstractTarget:
        return self.process.target

    def at_once(self, count: int) -> int:
        # Cheap or not, the drift has some numbers for each coordinate.
        target = self.process.target
        return draws_at_once(target.gradient_cost + 100.0 * target.dim, count)

    def draw(self, keys: Key[Array, " draws"], num_steps: int | None) -> Weighted:
        return self.process.simulate(self.parameters, keys, num_steps)

    def log_weights_to(
        self, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        return self.process.bridge_log_weights(self.parameters, ends, keys)

    def move(self, t: Float[Array, ""], dt: Float[Array, ""], x: Float[Array, " dim"]) -> Move:
        """The step from x at time t."""
        return self.process.move(self.parameters, t, dt, x)

    def describe(self) -> dict[str, Any]:
        """The process's options, and a digest of the parameters."""
        digest = hashlib.sha256()
        for array in to_arrays(self.parameters, "").values():
            digest.update(array.tobytes())
        return self.process.describe() | {"digest": digest.hexdigest()}

    def arrays(self) -> dict[str, np.ndarray]:
        flow = getattr(self.process.base, "flow", None)
        frozen = {} if flow is None else to_arrays(flow.parameters, "reference")
        return to_arrays(self.parameters, "parameter") | frozen


class MixtureFlow(AbstractSimulator):
    """The Föllmer process of a Gaussian mixture, or of a product of such: draws, weighed.

    Of several `candidates`, independent end points, a draw is one, chosen in proportion to their
    weights; their mean weight is the draw's own. So it stays exact, a candidate of no weight is no
    draw, and the bounds on ln Z are closer (Burda et al. 2016, arXiv:1509.00519).
    """

    target: AbstractTarget
    mixture: GaussianMixture | ProductMixture
    candidates: int = eqx.field(static=True, default=1)
    kind: ClassVar[str] = "mixture"

    @property
    def draws_judged(self) -> int:
        # A draw takes an evaluation of the density for each candidate: more where it is cheap.
        affordable = _JUDGING / max(self.candidates * self.target.gradient_cost, 1.0)
        return int(np.clip(affordable, super().draws_judged, 4 * super().draws_judged))

    def coordinates(self, target: AbstractTarget) -> AbstractTarget:
        return self.target

    def at_once(self, count: int) -> int:
        each = self.target.gradient_cost + 2.0 * self.mixture.means.size * self.target.dim
        return draws_at_once(self.candidates * each, count)

    def draw(self, keys: Key[Array, " draws"], num_steps: int | None) -> Weighted:
        return jax.vmap(self._draw)(keys)

    def _draw(self, key: PRNGKeyArray) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        if self.candidates == 1:
            x = self.mixture.draw(key)
            return x, self._log_weight(x)
        choice_key, end_key = jax.random.split(key)
        x, logs = self._ends(end_key, self.candidates)
        chosen = jax.random.categorical(choice_key, jnp.where(jnp.isnan(logs), -jnp.inf, logs))
        return x[chosen], jax.nn.logsumexp(logs) - math.log(self.candidates)

    def log_weights_to(
        self, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        return jax.vmap(self._log_weight_to)(ends, keys)

    def _log_weight_to(self, end: Float[Array, " dim"], key: PRNGKeyArray) -> Float[Array, ""]:
        """That of the end point among other candidates."""
        own = self._log_weight(end)
        if self.candidates == 1:
            return own
        others = self._ends(key, self.candidates - 1)[1]
        return jax.nn.logsumexp(jnp.append(others, own)) - math.log(self.candidates)

    def _ends(self, key: PRNGKeyArray, count: int) -> Weighted:
        x = jax.vmap(self.mixture.draw)(jax.random.split(key, count))
        return x, jax.vmap(self._log_weight)(x)

    def _log_weight(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.target.log_density(x) - self.mixture.log_density(x)

    def describe(self) -> dict[str, Any]:
        is_product = isinstance(self.mixture, ProductMixture)
        return {
            "form": "product" if is_product else "mixture",
            "components": self.mixture.log_shares.shape[-1],
            "candidates": self.candidates,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return to_arrays(self.mixture, "mixture")


class StoredDraws(AbstractSampler):
    """Draws of Markov chains, or one point: a sample uses each as often as any other can be.

    `method` made them; `exact` says whether its kernel leaves the target as it is, so that chains
    which agree can be believed. Where chains have `shares`, their draws are used in proportion.
    """

    draws: Float[np.ndarray, "chains draws dim"]
    method: str
    exact: bool
    divergences: int = 0
    shares: Float[np.ndarray, " chains"] | None = None  # of sum 1; equal ones for None
    kind: ClassVar[str] = "chains"
    weighs: ClassVar[bool] = False

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> Weighted:
        self._refuse_steps(num_steps)
        rng = generator(key, "rows")
        pooled = self.draws.reshape(-1, self.draws.shape[-1])
        # Shuffled, so that any part of a sample is as good as another.
        if self.shares is None:
            chosen = evenly(rng, len(pooled), count)
        else:
            chosen = systematic(rng, np.repeat(self.shares, self.draws.shape[1]), count)
        x = jnp.asarray(pooled[rng.permutation(chosen)])
        return x, jnp.zeros(count, x.dtype)

    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        self._refuse_steps(num_steps)
        x = self.draws
        num_chains, length, _ = x.shape
        if count is not None and count < num_chains * length:
            x = x[:, evenly(generator(key, "rows"), length, -(-count // num_chains))]
        logs = np.zeros(x.shape[:2], x.dtype)
        if self.shares is not None:
            logs += np.log(num_chains * self.shares)[:, None].astype(x.dtype)
        return jnp.asarray(x), jnp.asarray(logs)

    def describe(self) -> dict[str, Any]:
        return {"method": self.method, "exact": self.exact, "divergences": self.divergences}

    def arrays(self) -> dict[str, np.ndarray]:
        shares = {} if self.shares is None else {"shares": self.shares}
        return {"draws": self.draws, **shares}

    def _refuse_steps(self, num_steps: int | None) -> None:
        if num_steps is not None:
            raise InputError(
                f"num_steps was given, but the draws of {self.method} are stored already.",
                hint="num_steps= is for samplers that simulate, follmer.fit and follmer.mc_sfs",
            )


@compiled
def draw(sampler: AbstractSimulator, rows: KeyRows, num_steps: int | None) -> Weighted:
    """The sampler's draws, compiled once for each number of keys."""
    return sampler.draw(over(PATHS, as_keys(rows)), num_steps)


@compiled
def log_weights_to(
    sampler: Any, ends: Float[np.ndarray, "draws dim"], rows: KeyRows
) -> Float[Array, " draws"]:
    """`sampler.log_weights_to`, compiled once for each number of ends."""
    return sampler.log_weights_to(*over(PATHS, (jnp.asarray(ends), as_keys(rows))))
