"""Draws of globals and locals: the locals of any data points, some at a time."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from follmer.paths import simulate
from follmer.posterior.samplers import DRAWS_AT_ONCE, AbstractWeighted, Flow, Weighted
from follmer.process import Process
from follmer.targets import AbstractTarget, Rows, StructuredTarget, take
from follmer.tools.keys import KeyRows, as_keys, key_rows
from follmer.tools.mesh import PATHS, over
from follmer.tools.programs import compiled
from follmer.tools.progress import Bar
from follmer.tools.trees import to_arrays

# Locals that are simulated together, of one draw and in all; bounds memory, changes no draw.
_ROWS_AT_ONCE, _LOCALS_AT_ONCE = 1024, 2**15
# Locals simulated for a diagnosis.
_LOCALS_DIAGNOSED = 2**22
# Of the locals that are judged one by one: data points, globals and paths beside each of them.
_ROWS_JUDGED, _GLOBALS_JUDGED, _PATHS_JUDGED = 64, 16, 64


class _Chunk(NamedTuple):
    """Some data points: their places among all, and which of them count."""

    rows: Rows
    indices: Int[Array, " rows"]
    counts: Bool[Array, " rows"]


class StructuredFlow(AbstractWeighted):
    """A trained N-SFS of globals and locals.

    A local's noise belongs to its draw and its data point, so that the locals of some data points
    are those that a sample of all would hold.
    """

    process: Process
    parameters: PyTree
    kind: ClassVar[str] = "structured"

    def coordinates(self, target: AbstractTarget) -> AbstractTarget:
        return self.process.target

    @property
    def draws_judged(self) -> int:
        return int(np.clip(_LOCALS_DIAGNOSED // self._target.num_data, 64, 2048))

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> Weighted:
        rows, places = self._target.chosen_rows(None, None)
        return self.sample_rows(count, key, num_steps, rows, places, progress=progress)

    def sample_rows(
        self,
        count: int,
        key: PRNGKeyArray,
        num_steps: int | None,
        rows: Rows,
        indices: Int[np.ndarray, " rows"],
        *,
        progress: bool,
    ) -> Weighted:
        """Globals and the locals of the given data points, with the weights of both.

        `indices` are the data points' places: the target's own come first, others after them.
        """
        num_rows = len(indices)
        size = min(_ROWS_AT_ONCE, num_rows)
        draws = max(1, min(DRAWS_AT_ONCE, _LOCALS_AT_ONCE // max(size, 1), count))
        keys = key_rows(key, -(-count // draws) * draws)
        columns: list[np.ndarray] = []
        log_weights = np.zeros(count, self._target.dtype)
        with Bar(count, visible=progress, name="sampling", unit="draw", late=True) as bar:
            for start in range(0, count, draws):
                some, kept = keys[start : start + draws], min(draws, count - start)
                parts = [simulate_globals(self, some, num_steps)]
                parts += [
                    simulate_locals(self, some, num_steps, chunk)
                    for chunk in _chunks(rows, indices, size)
                ]
                x = np.concatenate([np.asarray(part[0]) for part in parts], axis=1)
                columns.append(x[:kept, : self._target.dim_with(rows)])
                weights = np.sum([np.asarray(part[1]) for part in parts], axis=0)
                log_weights[start : start + kept] = weights[:kept]
                bar.advance(kept)
        return jnp.asarray(np.concatenate(columns)), jnp.asarray(log_weights)

    def log_weights_to(
        self, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        """Log weights of paths to given ends, globals and all locals."""
        return self.process.bridge_log_weights(self.parameters, ends, keys)

    def describe(self) -> dict[str, Any]:
        return self.process.describe()

    def arrays(self) -> dict[str, np.ndarray]:
        return to_arrays(self.parameters, "parameter")

    @property
    def _target(self) -> StructuredTarget:
        return self.process.target  # type: ignore[return-value]


def _chunks(rows: Rows, indices: Int[np.ndarray, " rows"], size: int) -> list[_Chunk]:
    """Chunks of one size; the last is filled up by rows that do not count."""
    chunks = []
    for start in range(0, len(indices), max(size, 1)):
        places = np.minimum(np.arange(start, start + size), len(indices) - 1)
        counts = np.arange(start, start + size) < len(indices)
        chunks.append(_Chunk(take(rows, places), jnp.asarray(indices[places]), jnp.asarray(counts)))
    return chunks


@compiled
def simulate_globals(
    flow: StructuredFlow, rows: KeyRows, num_steps: int | None
) -> tuple[Float[Array, "draws global"], Float[Array, " draws"]]:
    """Globals alone, and their part of the log weights."""
    keys = over(PATHS, as_keys(rows))
    target = flow._target
    none = take(target.data, np.zeros(0, int))
    drift = flow.process.drift_at(flow.parameters, none)
    diffusion = flow.process.diffusion(num_steps, none)._replace(weights=None)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        path = simulate(drift, diffusion, diffusion.noise(jax.random.split(key)[0]))
        log_terminal = target.global_log_density(path.end) - diffusion.log_reference(path.end)
        return path.end, log_terminal + path.log_ratio

    return jax.vmap(one)(keys)


@compiled
def simulate_locals(
    flow: StructuredFlow, rows: KeyRows, num_steps: int | None, chunk: _Chunk
) -> tuple[Float[Array, "draws locals"], Float[Array, " draws"]]:
    """The locals of some data points beside the keys' own globals, and their log weights."""
    keys = over(PATHS, as_keys(rows))
    target = flow._target
    drift = flow.process.drift_at(flow.parameters, chunk.rows)
    own = jnp.zeros(target.global_dim, target.dtype)
    counts = jnp.repeat(chunk.counts.astype(target.dtype), target.local_dim)
    diffusion = flow.process.diffusion(num_steps, chunk.rows)
    diffusion = diffusion._replace(weights=jnp.concatenate([own, counts]))
    of_globals = diffusion._replace(dim=target.global_dim)
    of_local = diffusion._replace(dim=target.local_dim)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        global_key, local_key = jax.random.split(key)
        local_keys = jax.vmap(lambda index: jax.random.fold_in(local_key, index))(chunk.indices)
        # Axes of (rows, steps, local) become (steps, rows local).
        noise = jax.vmap(of_local.noise)(local_keys).swapaxes(0, 1)
        noise = noise.reshape(diffusion.num_steps, -1)
        noise = jnp.concatenate([of_globals.noise(global_key), noise], axis=1)
        path = simulate(drift, diffusion, noise)
        densities = target.local_log_densities(path.end, chunk.rows)
        log_terminal = jnp.sum(jnp.where(chunk.counts, densities, 0.0))
        log_terminal -= diffusion.log_reference(path.end)
        return path.end[target.global_dim :], log_terminal + path.log_ratio

    return jax.vmap(one)(keys)


def single_local_log_weights(
    flow: StructuredFlow, key: PRNGKeyArray
) -> Float[np.ndarray, "rows paths globals"]:
    """Log weights of some data points' locals, each alone: many paths beside one of the globals."""
    target = flow._target
    places = np.unique(np.linspace(0, target.num_data - 1, _ROWS_JUDGED).astype(int))
    keys = key_rows(key, _GLOBALS_JUDGED)
    return np.asarray(_weigh_singly(flow, keys, take(target.data, places)), float)


@compiled
def _weigh_singly(
    flow: StructuredFlow, keys: KeyRows, rows: Rows
) -> Float[Array, "rows paths globals"]:
    def of_path(row: Rows, path: Int[Array, ""]) -> Float[Array, " globals"]:
        chunk = _Chunk(row, path[None], jnp.ones(1, bool))
        return simulate_locals(flow, keys, None, chunk)[1]

    def of_row(row: Rows) -> Float[Array, "paths globals"]:
        alone = jax.tree.map(lambda column: column[None], row)
        return jax.vmap(lambda path: of_path(alone, path))(jnp.arange(_PATHS_JUDGED))

    return jax.lax.map(of_row, rows)


def flow_of(process: Process, parameters: PyTree) -> Flow | StructuredFlow:
    """The sampler that a trained process makes."""
    kind = StructuredFlow if process.target.has_locals else Flow
    return kind(process, parameters)
