"""A second opinion on a trained flow: its draws are moved by MCMC, and weighed again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.judging.diagnostics import SecondOpinion, pareto_smooth
from follmer.mcmc import hmc
from follmer.mcmc.climbs import spread_climbs, unvisited
from follmer.mcmc.resampling import log_mean_weight, weighted_moments
from follmer.nsfs import NSFS
from follmer.plans.laplace import laplace
from follmer.plans.probing import probe
from follmer.plans.start import affordable_starts, gradient_cost
from follmer.targets import StructuredTarget, Target
from follmer.tools.host import generator, normals

# Arithmetic that the moves may cost: some seconds.
_BUDGET = 1e11
# The densities of locals take more time than arithmetic tells.
_MAX_DIM, _MAX_STRUCTURED = 2000, 400
_NUM_CHAINS = 256
_MOVES = (4, 60)
# The share of the mass from which a mode is missed, and draws that may be near it; modes looked
# at, and gradients that a look takes, about.
_SLIVER, _LOOKED_FROM = 0.05, 512
_MAX_MISSED, _GRADIENTS_PER_MODE = 8, 2000.0
# Points along a line, so near to each other that only rounding bends it, and the noise of the log
# density, in nats, from which weights suffer.
_LINE, _STEP, _NOISY = 8, 1e-3, 0.05


def precision_note(
    target: Target | StructuredTarget, x: Float[Array, "draws dim"], key: PRNGKeyArray
) -> str | None:
    """A warning where single precision blurs the log density at draws of a whitened target."""
    if target.dtype != jnp.float32:
        return None
    noise = float(np.median(rounding_noise(target, np.asarray(x)[:_LINE], key)))
    if not noise > _NOISY:
        return None
    return (
        f"single precision blurs the log density by about {noise:.2g} nats, which limits training "
        "and weights: try jax.config.update('jax_enable_x64', True) before anything else"
    )


def rounding_noise(
    target: Target | StructuredTarget, x: Float[Array | np.ndarray, "draws dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " draws"]:
    """The standard deviation of the log density's rounding, by third differences along lines."""
    direction = normals(key, x.shape, x.dtype)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    steps = _STEP * np.arange(_LINE, dtype=x.dtype)
    points = np.asarray(x)[:, None] + steps[:, None] * direction[:, None]
    values = np.asarray(_log_densities(target, points, target.data), float)
    # The weights 1, −3, 3, −1 of a third difference have squares that sum to 20.
    return np.diff(values, 3, axis=1).std(axis=1) / np.sqrt(20.0)


@eqx.filter_jit
def _log_densities(
    target: Target | StructuredTarget, points: Float[Array, "draws line dim"], data: PyTree
) -> Float[Array, "draws line"]:
    return jax.vmap(jax.vmap(lambda x: target.log_density(x, data)))(points)


def is_affordable(target: Target | StructuredTarget) -> bool:
    """Whether a target has so few coordinates that its draws can be moved."""
    return target.dim <= (_MAX_STRUCTURED if isinstance(target, StructuredTarget) else _MAX_DIM)


def second_opinion(
    algorithm: NSFS,
    parameters: PyTree,
    x: Float[Array, "draws dim"],
    log_weights: Float[Array, " draws"],
    key: PRNGKeyArray,
    *,
    look_for_modes: bool = True,
) -> SecondOpinion | None:
    """Move a flow's weighted draws and weigh them again; None where that would cost too much."""
    target = algorithm.target
    cost = gradient_cost(target)
    per_move = cost * hmc.NUM_LEAPFROG
    num_chains = int(np.clip(_BUDGET / (per_move * _MOVES[1]), 64, _NUM_CHAINS))
    num_moves = int(np.clip(_BUDGET / (per_move * num_chains), 0, _MOVES[1]))
    if num_moves < _MOVES[0]:
        return None
    choice_key, move_key, weigh_key, climb_key = jax.random.split(key, 4)
    if not np.isfinite(np.asarray(log_weights)).all():
        return None
    weights = np.exp(pareto_smooth(log_weights)[0])
    mean, covariance = weighted_moments(np.asarray(x, float), weights)
    sd = np.sqrt(np.diag(covariance))
    chosen = generator(choice_key).choice(len(x), num_chains, p=weights / weights.sum())

    @jax.jit
    def moved_and_weighed(x: Float[Array, "chains dim"], data: PyTree) -> tuple[Array, Array]:
        # Shrunk towards independence: few effective draws make a poor covariance.
        shrunk = 0.5 * covariance + 0.5 * np.diag(sd**2 + 1e-12)
        factor = jnp.asarray(np.linalg.cholesky(shrunk), x.dtype)
        step = jnp.asarray(1.0 / target.dim**0.25, x.dtype)
        moved = hmc.move(
            lambda x: target.log_density(x, data), x, factor, step, num_moves, move_key
        ).particles
        keys = jax.random.split(weigh_key, num_chains)
        return moved, algorithm.bridge_log_weights(parameters, moved, keys, data)

    moved, bridged = moved_and_weighed(np.asarray(x)[chosen], target.data)
    bridged = np.asarray(bridged, float)
    shifts = (np.asarray(moved, float).mean(axis=0) - mean) / sd
    ess = 1.0 / np.sum(weights**2)
    missed = 0
    if look_for_modes and isinstance(target, Target):
        log_evidence = log_mean_weight(np.asarray(log_weights, float))
        missed = missed_modes(target, x, log_evidence, cost, climb_key)
    return SecondOpinion(
        eubo=float(bridged.mean()),
        eubo_se=float(bridged.std() / np.sqrt(num_chains)),
        mean_shift=float(np.abs(shifts).max()),
        mean_shift_noise=float(
            np.sqrt((1.0 / num_chains + 1.0 / ess) * (1.0 + 2.0 * np.log(target.dim)))
        ),
        missed_modes=missed,
    )


def missed_modes(
    target: Target,
    x: Float[Array, "draws dim"],
    log_evidence: float,
    cost: float,
    key: PRNGKeyArray,
) -> int:
    """How many modes climbs find that no draw is near, each with more than a sliver of the mass.

    MCMC cannot tell: moves between far modes take longer than anyone waits. Of several, the highest
    are looked at, as many as a gradient's cost allows.
    """
    num_starts = affordable_starts(target, cost)
    if num_starts == 1:
        return 0
    num_candidates = int(np.clip(_BUDGET / (_GRADIENTS_PER_MODE * cost), 1, _MAX_MISSED))
    own, affine = target.unwhitened, target.space.affine
    some = x[:_LOOKED_FROM]
    draws = np.asarray(some if affine is None else jax.vmap(affine)(some))
    climb_key, probe_key = jax.random.split(key)
    ends, separate = spread_climbs(own.log_density, own.dim, own.dtype, num_starts, climb_key)
    if len(ends.x) == 0:
        return 0
    modes = ends.x[separate][: 2 * num_candidates]
    candidates = modes[unvisited(own.log_density, modes, draws)][:num_candidates]
    gaussians = (laplace(own.log_density, jnp.asarray(mode), own.dtype) for mode in candidates)
    masses = [probe(own, gaussian, probe_key).log_evidence for gaussian in gaussians]
    return int(np.sum(np.array(masses) > log_evidence + np.log(_SLIVER)))
