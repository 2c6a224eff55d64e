"""More dimensions than covariances can be made for: independent coordinates around a point."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.plans.plan import Plan
from follmer.plans.survey import Survey
from follmer.targets import AbstractTarget, as_target
from follmer.targets.affine import diagonal
from follmer.tools.keys import named_key, normals
from follmer.tools.programs import compiled

# Gradients at random signs by which scales are told, and how often.
_PROBES, _REFINEMENTS = 8, 4
# Widths are kept within this factor of their median.
_RANGE = 1e4
# The width around a point estimate, relative to the prior's, and how the point is found.
_NARROW = 0.2
_DESCENT_STEPS, _DESCENT_RATE = 1000, 0.02
# The learning rate of the Gaussian's means and log widths, in units of the narrow width.
_WIDENING_RATE = 0.15
_NUM_PATHS = 16
# Operations in one training step, and rows that every batch may have; how many steps, the more the
# cheaper they are.
_STEP_BUDGET, _SMALLEST_BATCH = 5e8, 128
_FEWEST_STEPS, _MOST_STEPS = 1000, 4000


def mean_field(survey: Survey, key: PRNGKeyArray) -> Plan:
    """A narrow Gaussian around a point estimate: independent coordinates from there.

    From the prior's whole width, independent noise in many weights would drown what the data say.
    """
    target = survey.target
    width_key, start_key, descent_key = (
        named_key(key, name) for name in ("widths", "start", "descent")
    )
    zero = np.zeros(target.dim)
    scale = prior_widths(target, width_key)
    scaled = target.whitened(diagonal(zero, scale, target.dtype))
    batch_size, num_iterations = _affordable_steps(target)
    start = _NARROW * normals(start_key, "point", (target.dim,), target.dtype)
    point = descend(
        scaled,
        jnp.asarray(start),
        descent_key,
        batch_size=batch_size,
        num_iterations=_DESCENT_STEPS,
        learning_rate=_DESCENT_RATE,
    )
    survey.density.gradient_evaluations += 2 * _PROBES * _REFINEMENTS + _DESCENT_STEPS
    affine = diagonal(scale * np.asarray(point, float), _NARROW * scale, target.dtype)
    # One step is exact for independent coordinates, and leaves a network nothing to look at.
    settings = {
        "num_steps": 1,
        "drift": "zero",
        "num_paths": _NUM_PATHS,
        "batch_size": batch_size,
        "num_iterations": num_iterations,
        "learning_rate": _WIDENING_RATE,
    }
    why = f"{target.dim} dimensions: independent coordinates around a point estimate"
    return Plan("mean_field", target.whitened(affine), settings, why)


def prior_widths(target: AbstractTarget, key: PRNGKeyArray) -> Float[np.ndarray, " dim"]:
    """The scale of each coordinate of the prior (without data, of the density) around 0.

    By secants along random signs, a few gradients in all. Exact for a product of densities, as most
    priors are; other directions add noise.
    """
    prior = as_target(target).prior if target.num_data is not None else target
    return probed_widths(prior, np.zeros(target.dim), key)


def probed_widths(
    target: AbstractTarget, point: Float[np.ndarray, " dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " dim"]:
    """The scale of each coordinate of a target at a point."""
    signs = np.sign(normals(key, "signs", (_PROBES, len(point))))
    dtype = target.dtype
    widths = np.ones(len(point))
    for _ in range(_REFINEMENTS):
        parts = (jnp.asarray(part, dtype) for part in (point, widths, signs))
        found = np.asarray(_probed_precision(target, *parts), float)
        curved = np.isfinite(found) & (found > 0)
        if not curved.any():
            break
        middle = np.median(found[curved]) ** -0.5
        widths = np.where(curved, found, middle**-2) ** -0.5
        widths = np.clip(widths, middle / _RANGE, middle * _RANGE)
    return widths


@compiled
def _probed_precision(
    target: AbstractTarget,
    point: Float[Array, " dim"],
    widths: Float[Array, " dim"],
    signs: Float[Array, "probes dim"],
) -> Float[Array, " dim"]:
    def one(sign: Float[Array, " dim"]) -> Float[Array, " dim"]:
        ahead, behind = (jax.grad(target.log_density)(point + s * widths * sign) for s in (1, -1))
        return sign * (behind - ahead) / (2.0 * widths)

    return jnp.mean(jax.lax.map(one, signs), axis=0)


@compiled
def descend(
    target: AbstractTarget,
    start: Float[Array, " dim"],
    key: PRNGKeyArray,
    *,
    batch_size: int | None,
    num_iterations: int,
    learning_rate: float,
) -> Float[Array, " dim"]:
    """A point of high density by Adam on mini-batches, the rate decayed along a cosine."""
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations))

    def body(
        i: Int[Array, ""], carry: tuple[Array, optax.OptState]
    ) -> tuple[Array, optax.OptState]:
        x, state = carry
        batch = target.random_batch(jax.random.fold_in(key, i), batch_size)
        gradient = jax.grad(lambda x: -target.log_density(x, batch))(x)
        updates, state = adam.update(gradient, state, x)
        return optax.apply_updates(x, updates), state

    return jax.lax.fori_loop(0, num_iterations, body, (start, adam.init(start)))[0]


def _affordable_steps(target: AbstractTarget) -> tuple[int | None, int]:
    """Rows (None for all) with which a training step takes a fraction of a second; how many steps.

    All of them together cost as much as the fewest of the largest.
    """
    cost = _NUM_PATHS * target.gradient_cost
    steps = int(np.clip(_FEWEST_STEPS * _STEP_BUDGET / cost, _FEWEST_STEPS, _MOST_STEPS))
    if target.num_data is None:
        return None, steps
    rows = max(int(target.num_data * _STEP_BUDGET / cost), _SMALLEST_BATCH)
    return (rows if rows < target.num_data else None), steps
