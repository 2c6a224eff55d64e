"""Where training starts: coordinates in which the target is near N(0, I), and rough draws of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.mcmc import hmc
from follmer.mcmc.climbs import Ends, climb, spread_climbs
from follmer.mcmc.hmc import LogDensity
from follmer.mcmc.tempering import temper
from follmer.plans import chains
from follmer.plans.descent import PROBED_GRADIENTS, descend, probed_widths
from follmer.plans.laplace import diagonal_widths, laplace
from follmer.plans.probing import Probe, probe
from follmer.targets import StructuredTarget, Target
from follmer.targets.affine import Affine, dense_cost, diagonal, from_covariance

# Arithmetic that climbs and an exploration may spend on gradients of the target: some seconds.
_CLIMB_BUDGET, _BUDGET = 2e10, 1e11
# Operations per gradient up to which paths and steps are not spared, and are spared a little; and,
# for each coordinate, up to which the drift may look at the score in every step: beyond, a network
# alone learns faster.
_CHEAP_GRADIENT, _MODERATE_GRADIENT, _CHEAP_PER_COORDINATE = 3e5, 2e6, 1e4
# An exponential or a logarithm takes as long as so many products.
_TRANSCENDENTAL = 20.0
# Dense covariances are made up to here.
MAX_DENSE = 3000
# Beyond: the width around a point estimate, relative to the prior's, and how the point is found.
_NARROW = 0.2
_DESCENT_STEPS, _DESCENT_RATE = 1000, 0.02
# The learning rate of the Gaussian's means and log widths, in units of the narrow width.
_WIDENING_RATE = 0.15
_POINT_PATHS = 16
# Operations in one training step, and rows that every batch may have; how many steps, the more the
# cheaper they are.
_STEP_BUDGET, _SMALLEST_BATCH = 5e8, 128
_FEWEST_STEPS, _MOST_STEPS = 1000, 4000
# Rough draws are made up to here; beyond, particles are too few to say anything of modes.
_MAX_EXPLORED = 200
# The narrowest start of an exploration, per coordinate.
_UNIT = 5.0
_NUM_STARTS = 32
# Modes count as countless in more dimensions than these, where so many climbs, and this share of
# them, end apart.
_FEW_DIMENSIONS, _FEWEST_CLIMBS, _APART = 10, 8, 0.9
_NUM_PARTICLES, _FEWEST_PARTICLES = 4096, 512
_PER_PARTICLE = 4000.0  # gradients, about
# Nats of evidence that are clearly more than the mode's; nats between evidence and ELBO from which
# a Gaussian at the mode is worse than particles, in so few dimensions.
_CLEARLY = 5.0
_FAR_OFF, _FEW_FOR_PARTICLES = 3.0, 20


class Start(NamedTuple):
    """What a warm-up found, which settings suit it, and why, in words."""

    affine: Affine | None
    settings: Mapping[str, Any]
    words: str
    draws: Float[Array, "draws dim"] | None = None  # in the whitened coordinates
    gradient_evaluations: int = 0
    is_partial: bool = False  # modes are known that the draws will not visit
    has_one_mode: bool = False  # all climbs led there
    from_mode: bool = False  # an exploration, which would not take long, may lead further


def automatic(target: Target, key: PRNGKeyArray) -> Start:
    """Laplace where one mode is found, exploration where there are several."""
    if target.dim > MAX_DENSE:
        return by_point(target, key)
    cost = gradient_cost(target)
    num_starts = affordable_starts(target, cost)
    climb_key, explore_key = jax.random.split(key)
    if num_starts > 1:
        ends, modes = spread_climbs(
            target.log_density, target.dim, target.dtype, num_starts, climb_key
        )
        if modes.sum() > 1 and not _countless(modes, target.dim):
            return _explored_modes(target, explore_key, ends, modes, cost)
    else:
        ends = climb(target.log_density, np.zeros((1, target.dim), target.dtype))
        modes = np.ones(len(ends.x), bool)
    if len(ends.x) == 0:
        return identity(target)._replace(words="no mode was found: own coordinates are used")
    start = by_laplace(target, ends, cost)
    assert start.affine is not None
    at_mode, can_wander = None, chains.is_affordable(target.dim, cost)
    if can_wander or _is_explorable(target, cost):
        at_mode = probe(target, start.affine, explore_key)
    doubt = _doubt(target, at_mode, cost, explore_key)
    if doubt is not None:
        zero = np.zeros((1, target.dim), target.dtype)
        points = np.concatenate([ends.x[: doubt.from_mode], zero])
        spent = start.gradient_evaluations
        return explored(target, explore_key, points, cost, spent, doubt.words)
    if can_wander and at_mode is not None and at_mode.gap > _FAR_OFF:
        start = _by_chains(target, start, at_mode, explore_key)
    if _countless(modes, target.dim):
        found = f"{len(modes)} climbs found {modes.sum()} modes, too many to visit"
        words = f"{found}: draws are of the best alone"
        return start._replace(words=words, is_partial=True)
    return start._replace(has_one_mode=True, from_mode=_is_explorable(target, cost))


def affordable_starts(target: Target, cost: float) -> int:
    """How many climbs may look for modes; one where there are too many dimensions to explore."""
    if target.dim > _MAX_EXPLORED:
        return 1
    return int(np.clip(_CLIMB_BUDGET / (400.0 * cost), 1, _NUM_STARTS))


def _countless(modes: np.ndarray, dim: int) -> bool:
    """Hardly two of several climbs ended in one mode, as where signs and orders are arbitrary.

    In few dimensions an exploration has particles enough for all of them.
    """
    return dim > _FEW_DIMENSIONS and len(modes) >= _FEWEST_CLIMBS and modes.mean() >= _APART


class _Doubt(NamedTuple):
    """Why the Gaussian at the only mode found is no place to start from; whether its mode is."""

    words: str
    from_mode: bool


def _doubt(target: Target, at_mode: Probe | None, cost: float, key: PRNGKeyArray) -> _Doubt | None:
    if at_mode is None or not _is_explorable(target, cost):
        return None
    zero = jnp.zeros(target.dim, target.dtype)
    around = [diagonal(zero, np.full(target.dim, scale), target.dtype) for scale in (1.0, _UNIT)]
    others = [probe(target, affine, key) for affine in around]
    if max(other.log_evidence for other in others) > at_mode.log_evidence + _CLEARLY:
        return _Doubt("the mass is not around the mode", from_mode=False)
    if target.dim <= _FEW_FOR_PARTICLES and at_mode.gap > _FAR_OFF:
        return _Doubt("the curvature at the mode misleads", from_mode=True)
    return None


def _by_chains(target: Target, start: Start, found: Probe, key: PRNGKeyArray) -> Start:
    """The Gaussian to which short chains lead, where it is better than that at the mode."""
    assert start.affine is not None
    wandered = chains.wander(target, start.affine, found, key)
    spent = start.gradient_evaluations + wandered.gradient_evaluations
    if wandered.affine is start.affine:
        return start._replace(gradient_evaluations=spent)
    return start._replace(
        affine=wandered.affine,
        words="the mass is not around the mode: whitened by the curvature along short chains",
        gradient_evaluations=spent,
    )


def _is_explorable(target: Target, cost: float) -> bool:
    """Whether rough draws can be had in a minute or so."""
    return target.dim <= _MAX_EXPLORED and cost <= _BUDGET / (_PER_PARTICLE * _FEWEST_PARTICLES)


def identity(target: Target) -> Start:
    """The target's own coordinates."""
    return Start(None, {}, "")


def by_laplace(target: Target, ends: Ends, cost: float) -> Start:
    """Whitened at the best mode; the network is left with what is not Gaussian."""
    affine = laplace(target.log_density, jnp.asarray(ends.x[0]), target.dtype)
    settings: dict[str, Any] = {
        "num_steps": 16,
        "grid": "uniform",
        "num_iterations": 1000,
        "learning_rate": _learning_rate(target.dim),
    }
    words = f"one mode from {len(ends.x)} starts: whitened by its curvature"
    if cost <= max(_CHEAP_GRADIENT, _CHEAP_PER_COORDINATE * target.dim):
        settings["drift"] = "score_guided"
        cost += dense_cost(target.dim)
        if cost > _MODERATE_GRADIENT:
            settings |= {"num_paths": 8, "num_iterations": 200}
        elif cost > _CHEAP_GRADIENT:
            settings |= {"num_paths": 16, "num_iterations": 500}
    else:
        # Beside such a gradient more steps and a larger drift cost little, but paths are dear.
        settings |= {"drift": "additive", "num_steps": 32, "num_paths": 24, "num_iterations": 500}
    gradients = ends.gradient_evaluations + 16 * target.dim
    return Start(affine, settings, words, None, gradients)


def by_prior(target: Target, key: PRNGKeyArray) -> Start:
    """Scaled by the prior, or by the curvature at 0 where the target has no prior of its own."""
    zero = jnp.zeros(target.dim, target.dtype)
    affine = diagonal(zero, probed_widths(_prior(target), zero, key), target.dtype)
    words = "scaled coordinate by coordinate by the prior"
    return Start(affine, {}, words, None, PROBED_GRADIENTS)


def by_point(target: Target, key: PRNGKeyArray) -> Start:
    """A narrow Gaussian around a point estimate: independent coordinates from there.

    From the prior's whole width, independent noise in many weights would drown what the data say.
    """
    width_key, start_key, descent_key = jax.random.split(key, 3)
    zero = jnp.zeros(target.dim, target.dtype)
    scale = jnp.asarray(probed_widths(_prior(target), zero, width_key), target.dtype)
    scaled = target.whitened(diagonal(zero, scale, target.dtype))
    batch_size, num_iterations = _affordable_steps(target)
    start = _NARROW * jax.random.normal(start_key, zero.shape, zero.dtype)
    point = descend(
        scaled,
        start,
        descent_key,
        batch_size=batch_size,
        num_iterations=_DESCENT_STEPS,
        learning_rate=_DESCENT_RATE,
    )
    affine = diagonal(scale * point, _NARROW * scale, target.dtype)
    # One step is exact for independent coordinates, and leaves a network nothing to look at.
    settings = {
        "num_steps": 1,
        "drift": "zero",
        "num_paths": _POINT_PATHS,
        "batch_size": batch_size,
        "num_iterations": num_iterations,
        "learning_rate": _WIDENING_RATE,
    }
    words = f"{target.dim} dimensions: independent coordinates around a point estimate"
    return Start(affine, settings, words, None, PROBED_GRADIENTS + _DESCENT_STEPS)


def _prior(target: Target) -> LogDensity:
    return target.log_prior_density if target.num_data is not None else target.log_density


def _affordable_steps(target: Target) -> tuple[int | None, int]:
    """Rows (None for all) with which a training step takes a fraction of a second; how many steps.

    All of them together cost as much as the fewest of the largest.
    """
    cost = _POINT_PATHS * gradient_cost(target)
    steps = int(np.clip(_FEWEST_STEPS * _STEP_BUDGET / cost, _FEWEST_STEPS, _MOST_STEPS))
    if target.num_data is None:
        return None, steps
    rows = max(int(target.num_data * _STEP_BUDGET / cost), _SMALLEST_BATCH)
    return (rows if rows < target.num_data else None), steps


def _learning_rate(dim: int) -> float:
    """The noise of training adds up over coordinates: smaller steps in many dimensions."""
    return 1e-2 * min(1.0, np.sqrt(50.0 / dim))


def _explored_modes(
    target: Target, key: PRNGKeyArray, ends: Ends, modes: np.ndarray, cost: float
) -> Start:
    found = ends.x[modes]
    words = f"{len(found)} modes or more"
    return explored(target, key, found, cost, ends.gradient_evaluations, words)


def explored(
    target: Target,
    key: PRNGKeyArray,
    points: Float[np.ndarray, "points dim"],
    cost: float,
    spent: int,
    why: str,
) -> Start:
    """Tempered SMC from a normal that is wide enough for all given points."""
    mean, scale = _wide(target, points)
    num_particles = int(
        np.clip(_BUDGET / (_PER_PARTICLE * cost), _FEWEST_PARTICLES, _NUM_PARTICLES)
    )
    result = jax.jit(lambda key: temper(target.log_density, mean, scale, num_particles, key))(key)
    affine = _covering(np.asarray(result.particles, float), target.dtype)
    whitened = jax.vmap(affine.inverse)(result.particles)
    moves = 4 * int(result.temperatures) + 100
    gradients = spent + moves * hmc.NUM_LEAPFROG * num_particles
    words = (
        f"{why}: explored by tempered SMC ({num_particles} particles, "
        f"{int(result.temperatures)} temperatures)"
    )
    return Start(affine, {"learning_rate": 5e-3}, words, whitened, gradients)


def explored_from(target: Target, key: PRNGKeyArray) -> Start:
    """Exploration whatever the number of modes."""
    climb_key, explore_key = jax.random.split(key)
    ends, modes = spread_climbs(
        target.log_density, target.dim, target.dtype, _NUM_STARTS, climb_key
    )
    return _explored_modes(target, explore_key, ends, modes, gradient_cost(target))


def gradient_cost(target: Target | StructuredTarget) -> float:
    """Arithmetic operations in one gradient of the density."""
    like = jax.ShapeDtypeStruct((target.dim,), target.dtype)
    # Loops are counted once, so the data are cut down to what needs none.
    rows = jax.tree.map(lambda array: array[: target.rows_at_once], target.data)
    analysis = jax.jit(jax.grad(target.log_density)).lower(like, rows).compile().cost_analysis()
    num_data = target.num_data or 1
    repeats = num_data / max(target.rows_at_once, 1)
    counts = analysis or {}
    operations = counts.get("flops", 0.0) + _TRANSCENDENTAL * counts.get("transcendentals", 0.0)
    # A floor by the sizes that must be read, for loops of the target's own.
    return max(repeats * float(operations), float(target.dim * num_data))


def _covering(draws: np.ndarray, dtype: Any) -> Affine:
    """Whitening by the draws' moments, wider where tails are heavier than a normal's."""
    mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
    farthest = np.abs(draws - mean).max(axis=0) / np.sqrt(np.diag(covariance))
    # The largest of n standard normals is about √(2 ln n).
    excess = np.maximum(farthest / np.sqrt(2.0 * np.log(len(draws))), 1.0)
    return from_covariance(mean, covariance * np.outer(excess, excess), dtype)


def _wide(target: Target, modes: np.ndarray) -> tuple[Array, Array]:
    """Mean and scale of a normal that covers the modes and their surroundings."""
    widths = np.stack(
        [diagonal_widths(target.log_density, jnp.asarray(mode)) for mode in modes[:8]]
    )
    scale = np.maximum(1.5 * modes.std(axis=0), 3.0 * np.median(widths, axis=0))
    # Unconstrained coordinates are made to be of order one: no narrower start is safe.
    return (
        jnp.asarray(modes.mean(axis=0), target.dtype),
        jnp.asarray(np.maximum(scale, _UNIT), target.dtype),
    )
