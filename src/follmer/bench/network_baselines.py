"""What else a user would try on a small network, behind the same face."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.baselines import PolynomialDecay, sgd, sgld
from follmer.mcmc.ensembles import point_estimates
from follmer.plans.ensemble import schedule_for
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import StoredDraws
from follmer.targets import Target
from follmer.tools.keys import named_key, normals

# Rows from which batches are used, and their size.
_MANY, _BATCH = 5000, 512
# Draws of a Laplace approximation.
_NUM_DRAWS = 500
_SGLD_STEPS = 20_000


def point(target: Target, key: PRNGKeyArray) -> Posterior:
    """The point estimate of `follmer.sgd`; by batches where rows are many."""
    large = (target.num_data or 0) > _MANY
    steps = {"num_iterations": 10_000, "batch_size": _BATCH} if large else {"num_iterations": 3000}
    return sgd(target, key=key, progress=False, **steps)


def deep_ensemble(target: Target, key: PRNGKeyArray) -> Posterior:
    """As many point estimates as the default fit has members, and with its steps."""
    schedule = schedule_for(target)
    ends, _ = point_estimates(target, schedule, key)
    stored = StoredDraws(np.asarray(ends)[:, None], "deep ensemble", exact=False)
    return Posterior(target, stored, progress=False)


def langevin(target: Target, key: PRNGKeyArray) -> Posterior:
    """`follmer.sgld` from a point estimate, with steps that do not diverge here."""
    start = point(target, named_key(key, "point")).sample(1, key=key)
    num_data = target.num_data or 1
    return sgld(
        target,
        key=named_key(key, "chain"),
        step_size=PolynomialDecay(0.1 / num_data, b=1000.0),
        num_iterations=_SGLD_STEPS,
        batch_size=_BATCH if num_data > _MANY else None,
        start=jax.tree.map(lambda leaf: leaf[0], start),
        progress=False,
    )


def last_layer_laplace(target: Target, key: PRNGKeyArray) -> Posterior:
    """A Gaussian of the last layer's weights around a point estimate, by its curvature there."""
    found: StoredDraws = point(target, named_key(key, "point")).sampler  # type: ignore[assignment]
    mode = jnp.asarray(found.draws[0, 0])
    # A layer is a matrix and a vector.
    start = target.space.leaves[-2].start

    def log_density(last: Float[Array, " last"]) -> Float[Array, ""]:
        return target.log_density(mode.at[start:].set(last))

    precision = -np.asarray(jax.jit(jax.hessian(log_density))(mode[start:]), float)
    values, axes = np.linalg.eigh(precision)
    # Directions that curve the wrong way are given the prior's width.
    factor = axes / np.sqrt(np.where(values > 1.0, values, 1.0))
    noise = normals(key, "draws", (_NUM_DRAWS, len(values)))
    draws = np.repeat(np.asarray(mode)[None], _NUM_DRAWS, axis=0)
    draws[:, start:] += (noise @ factor.T).astype(draws.dtype)
    stored = StoredDraws(draws[None], "last-layer Laplace", exact=False)
    return Posterior(target, stored, progress=False)


BASELINES: dict[str, Callable[[Target, PRNGKeyArray], Posterior]] = {
    "sgd": point,
    "deep_ensemble": deep_ensemble,
    "sgld": langevin,
    "laplace": last_layer_laplace,
}
