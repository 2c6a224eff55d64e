"""Draws of globals and locals: the locals of any data points, some at a time."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree
from tqdm.auto import tqdm

from follmer.judging.diagnostics import LocalOpinion, ess_fraction
from follmer.nsfs import NSFS
from follmer.paths import simulate
from follmer.posterior.samplers import DRAWS_AT_ONCE, AbstractWeighted, Flow
from follmer.targets import Rows, StructuredTarget, take
from follmer.tools.trees import to_arrays

# Locals that are simulated together, of one draw and in all; bounds memory, changes no draw.
_ROWS_AT_ONCE, _LOCALS_AT_ONCE = 1024, 2**15
# Locals simulated for a diagnosis.
_LOCALS_DIAGNOSED = 2**22
# Of the locals that are judged one by one: data points, globals and paths beside each of them.
_ROWS_JUDGED, _GLOBALS_JUDGED, _PATHS_JUDGED = 64, 16, 64
# The share of data points that may be worse than what is said of them.
_FEW = 0.05


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

    algorithm: NSFS
    parameters: PyTree
    kind: ClassVar[str] = "structured"

    @property
    def draws_diagnosed(self) -> int:
        return int(np.clip(_LOCALS_DIAGNOSED // self._target.num_data, 64, 2048))

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, data: PyTree
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        return self.sample_rows(count, key, num_steps, data, np.arange(data.features.shape[0]))

    def sample_rows(
        self,
        count: int,
        key: PRNGKeyArray,
        num_steps: int | None,
        rows: Rows,
        indices: Int[np.ndarray, " rows"],
    ) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
        """Globals and the locals of the given data points, with the weights of both.

        `indices` are the data points' places: the target's own come first, others after them.
        """
        num_rows = len(indices)
        size = min(_ROWS_AT_ONCE, num_rows)
        draws = max(1, min(DRAWS_AT_ONCE, _LOCALS_AT_ONCE // max(size, 1), count))
        keys = jax.random.split(key, -(-count // draws) * draws)
        columns: list[np.ndarray] = []
        log_weights = np.zeros(count, self._target.dtype)
        with tqdm(total=count, desc="sampling", unit="draw", delay=2, leave=False) as bar:
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
                bar.update(kept)
        return jnp.asarray(np.concatenate(columns)), jnp.asarray(log_weights)

    def describe(self) -> dict[str, Any]:
        return self.algorithm.describe()

    def arrays(self) -> dict[str, np.ndarray]:
        return to_arrays(self.parameters, "parameter")

    @property
    def _target(self) -> StructuredTarget:
        assert isinstance(self.algorithm.target, StructuredTarget)
        return self.algorithm.target


def _chunks(rows: Rows, indices: Int[np.ndarray, " rows"], size: int) -> list[_Chunk]:
    """Chunks of one size; the last is filled up by rows that do not count."""
    chunks = []
    for start in range(0, len(indices), max(size, 1)):
        places = np.minimum(np.arange(start, start + size), len(indices) - 1)
        counts = np.arange(start, start + size) < len(indices)
        chunks.append(_Chunk(take(rows, places), jnp.asarray(indices[places]), jnp.asarray(counts)))
    return chunks


@eqx.filter_jit
def simulate_globals(
    flow: StructuredFlow, keys: Key[Array, " draws"], num_steps: int | None
) -> tuple[Float[Array, "draws global"], Float[Array, " draws"]]:
    """Globals alone, and their part of the log weights."""
    target = flow._target
    none = take(target.data, np.zeros(0, int))
    drift = flow.algorithm.assemble(flow.parameters, none, inference=True)
    diffusion = flow.algorithm.diffusion(num_steps, none)._replace(weights=None)

    def one(key: PRNGKeyArray) -> tuple[Array, Array]:
        path = simulate(drift, diffusion, diffusion.noise(jax.random.split(key)[0]))
        log_terminal = target.global_log_density(path.end) - diffusion.log_reference(path.end)
        return path.end, log_terminal + path.log_ratio

    return jax.vmap(one)(keys)


@eqx.filter_jit
def simulate_locals(
    flow: StructuredFlow, keys: Key[Array, " draws"], num_steps: int | None, chunk: _Chunk
) -> tuple[Float[Array, "draws locals"], Float[Array, " draws"]]:
    """The locals of some data points beside the keys' own globals, and their log weights."""
    target = flow._target
    drift = flow.algorithm.assemble(flow.parameters, chunk.rows, inference=True)
    own = jnp.zeros(target.global_dim, target.dtype)
    counts = jnp.repeat(chunk.counts.astype(target.dtype), target.local_dim)
    diffusion = flow.algorithm.diffusion(num_steps, chunk.rows)
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


def local_opinion(flow: StructuredFlow, key: PRNGKeyArray) -> LocalOpinion:
    """Judge some locals one by one, by the weights of many paths beside one path of the globals."""
    target = flow._target
    places = np.unique(np.linspace(0, target.num_data - 1, _ROWS_JUDGED).astype(int))
    log_weights = _weigh_singly(
        flow, jax.random.split(key, _GLOBALS_JUDGED), take(target.data, places)
    )
    shares = np.apply_along_axis(ess_fraction, 1, np.asarray(log_weights, float))
    return LocalOpinion(float(np.quantile(shares.mean(axis=1), _FEW)), len(places))


@eqx.filter_jit
def _weigh_singly(
    flow: StructuredFlow, keys: Key[Array, " globals"], rows: Rows
) -> Float[Array, "rows paths globals"]:
    def of_path(row: Rows, path: Int[Array, ""]) -> Float[Array, " globals"]:
        chunk = _Chunk(row, path[None], jnp.ones(1, bool))
        return simulate_locals(flow, keys, None, chunk)[1]

    def of_row(row: Rows) -> Float[Array, "paths globals"]:
        alone = jax.tree.map(lambda column: column[None], row)
        return jax.vmap(lambda path: of_path(alone, path))(jnp.arange(_PATHS_JUDGED))

    return jax.lax.map(of_row, rows)


def flow_of(algorithm: NSFS, parameters: PyTree) -> Flow | StructuredFlow:
    """The sampler that a trained algorithm makes."""
    structured = isinstance(algorithm.target, StructuredTarget)
    return (StructuredFlow if structured else Flow)(algorithm, parameters)
