"""What a posterior predicts at the rows of a table, in few shapes: little is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from follmer.judging import Verdict, pareto_smooth
from follmer.mcmc.resampling import systematic
from follmer.posterior.datatree import PROPOSALS
from follmer.posterior.posterior import Posterior
from follmer.posterior.prediction import Prediction
from follmer.targets.observations import replicates
from follmer.tools.keys import generator, named_key

# Rows that are predicted at once, and rows from which so many more are.
_FEW_ROWS, _MANY_ROWS = 128, 1024


def predicted(
    posterior: Posterior,
    rows: Float[np.ndarray, "rows columns"],
    y: np.ndarray | None,
    quantiles: tuple[float, ...],
    num_draws: int,
    key: PRNGKeyArray,
) -> Prediction:
    """The prediction as NumPy's arrays, rows first; by weight where the verdict says so."""
    block, chosen = _whole_blocks(len(rows))
    found = posterior.predict(
        rows[chosen],
        y=None if y is None else y[chosen],
        key=key,
        num_samples=num_draws,
        batch_size=block * num_draws,
        weighted=posterior.verdict is Verdict.USE_WEIGHTS,
        quantiles=quantiles,
    )
    whole = jax.tree.map(lambda values: np.asarray(values, float), found)
    if whole.quantiles is not None:
        whole = whole._replace(quantiles=np.moveaxis(whole.quantiles, 0, 1))
    return jax.tree.map(lambda values: values[: len(rows)], whole)


def sampled_y(
    posterior: Posterior, rows: Float[np.ndarray, "rows columns"], count: int, key: PRNGKeyArray
) -> Float[np.ndarray, "rows draws"]:
    """Draws of y, each by one draw of the parameters for all rows."""
    draws_key = named_key(key, "draws")
    if posterior.verdict is Verdict.USE_WEIGHTS:
        proposals, logs = posterior.flat_sample(PROPOSALS * count, key=draws_key)
        weights = np.exp(pareto_smooth(logs)[0])
        x = proposals[systematic(generator(key, "choice"), weights, count)]
    else:
        x, _ = posterior.flat_sample(count, key=draws_key)
    _, chosen = _whole_blocks(len(rows))
    coordinates = posterior.sampler.coordinates(posterior.target)
    there = jnp.asarray(rows[chosen], posterior.target.dtype)
    found = replicates(coordinates, x, named_key(key, "y"), there)["y"]
    return np.asarray(found, float)[:, : len(rows)].T


def _whole_blocks(count: int) -> tuple[int, np.ndarray]:
    """Rows at once, and the places of all rows, the last repeated until it fills a block."""
    block = _FEW_ROWS if count <= _MANY_ROWS else _MANY_ROWS
    return block, np.minimum(np.arange(-(-count // block) * block), count - 1)
