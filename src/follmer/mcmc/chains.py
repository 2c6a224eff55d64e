"""Many Markov chains at once: Hamiltonian moves in one program, runs from a few starts, R-hat.

Moves leave a target as it is that may be tempered towards a wide normal. Groups of chains share a
start, and are run until groups agree (nested R-hat; Margossian et al. 2024, arXiv:2110.13017).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.mcmc.mixtures import safe_cholesky
from follmer.targets import AbstractTarget, Density
from follmer.tools.mesh import PATHS, over
from follmer.tools.programs import bound, compiled
from follmer.tools.progress import NEVER

# Leapfrog steps of a move.
NUM_LEAPFROG = 10
# Moves of one call: so many are recorded.
MOVES_PER_CALL = 8
# Mean acceptance that the step size is steered to (Beskos et al. 2013, arXiv:1001.4460: .65 – .8).
_ACCEPTANCE = 0.8
# Step sizes are log-uniform over this factor: narrow places need short steps, wide ones long, and
# trajectories of one length would come back to where they began.
_SPREAD = 30.0
# A trajectory is refused where a gradient is this large, in units of the coordinates' own.
_LARGEST = 1e12
# Chains of a site: groups that share a start, and chains in each.
NUM_GROUPS, GROUP_SIZE = 8, 8
# Calls of some moves each: until the covariance is read, and again; that draws are kept of.
WARM_CALLS, KEPT_CALLS = 3, 32
# Calls that are made even where the time is up.
_FEWEST_CALLS = 2
# Draws per coordinate from which their covariance is better than the curvature.
_ENOUGH_EACH = 4
# Draws that are kept of one site.
_MAX_KEPT = 8192
# Gradients in one call: every leapfrog step of every chain takes one.
GRADIENTS_PER_CALL = NUM_GROUPS * GROUP_SIZE * MOVES_PER_CALL * NUM_LEAPFROG


class Chains(NamedTuple):
    """Where chains stand, with the target's log density and gradient there, and their step size."""

    x: Float[Array, "chains dim"]
    log_density: Float[Array, " chains"]
    gradient: Float[Array, "chains dim"]
    step_size: Float[Array, ""]


def as_chains(
    target: AbstractTarget, x: np.ndarray, log_density: np.ndarray, gradient: np.ndarray
) -> Chains:
    """Chains at given places, with a first step size: in many dimensions steps are short."""
    parts, dtype = (x, log_density, gradient, target.dim**-0.25), target.dtype
    return Chains(*(jax.device_put(np.asarray(part, dtype)) for part in parts))


class Wide(NamedTuple):
    """The normal that a tempered target is mixed with: p^β N(mean, scale²)^(1−β)."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    inverse_temperature: Float[Array, ""]  # β; at 1 the normal does not matter

    def log_density(self, x: Float[Array, "*chains dim"]) -> Float[Array, "*chains"]:
        z = (x - self.mean) / self.scale
        return -0.5 * jnp.sum(z**2 + math.log(2 * math.pi) + 2 * jnp.log(self.scale), axis=-1)

    def mixed(
        self, x: Array, log_density: Array, gradient: Array
    ) -> tuple[Float[Array, " chains"], Float[Array, "chains dim"]]:
        """Log density and gradient of the tempered target."""
        beta = self.inverse_temperature
        pull = -(x - self.mean) / self.scale**2
        # 0 · ∞ where the target has no density is none either.
        value = jnp.where(beta > 0, beta * log_density, 0.0)
        slope = jnp.where(beta > 0, beta * gradient, 0.0)
        return value + (1.0 - beta) * self.log_density(x), slope + (1.0 - beta) * pull


class Moved(NamedTuple):
    """Chains after the moves of one call; all places on the way, and gradients there."""

    chains: Chains
    places: Float[Array, "moves chains dim"]
    gradients: Float[Array, "moves chains dim"]
    acceptance: Float[Array, ""]


@compiled
def advance(
    target: AbstractTarget,
    chains: Chains,
    wide: Wide,
    factor: Float[Array, "dim dim"],
    key: PRNGKeyArray,
    call: Int[Array | np.ndarray, ""],
) -> Moved:
    """`MOVES_PER_CALL` moves of all chains that leave the tempered target as it is.

    They are made in coordinates stretched by `factor`, in each call with other random numbers.
    """

    def body(chains: Chains, key: PRNGKeyArray) -> tuple[Chains, tuple[Array, Array, Array]]:
        chains, acceptance = move(value_and_gradient, chains, wide, factor, key)
        return chains, (chains.x, chains.gradient, acceptance)

    value_and_gradient = jax.vmap(jax.value_and_grad(target.log_density))
    keys = jax.random.split(jax.random.fold_in(key, call), MOVES_PER_CALL)
    chains, (places, gradients, acceptance) = jax.lax.scan(body, over(PATHS, chains), keys)
    return Moved(chains, places, gradients, jnp.mean(acceptance))


def move(
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    chains: Chains,
    wide: Wide,
    factor: Float[Array, "dim dim"],
    key: PRNGKeyArray,
) -> tuple[Chains, Float[Array, ""]]:
    """One trajectory of every chain, taken or refused, and the mean acceptance.

    The step size adapts after the move, so that the move itself is exact.
    """
    momentum_key, step_key, accept_key = jax.random.split(key, 3)
    start, _, _, step_size = chains
    momentum = jax.random.normal(momentum_key, start.shape, start.dtype)
    uniform = jax.random.uniform(step_key, (len(start), 1), start.dtype)
    step = step_size * jnp.exp(-math.log(_SPREAD) * uniform)

    def leapfrog(_: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, momentum, log_density, gradient = carry
        slope = wide.mixed(x, log_density, gradient)[1]
        momentum = momentum + 0.5 * step * (slope @ factor)
        x = x + step * (momentum @ factor.T)
        log_density, gradient = value_and_gradient(x)
        slope = wide.mixed(x, log_density, gradient)[1]
        return x, momentum + 0.5 * step * (slope @ factor), log_density, gradient

    begin = (start, momentum, chains.log_density, chains.gradient)
    x, end_momentum, log_density, gradient = jax.lax.fori_loop(0, NUM_LEAPFROG, leapfrog, begin)
    before = wide.mixed(start, chains.log_density, chains.gradient)[0]
    after = wide.mixed(x, log_density, gradient)[0]
    log_ratio = after - before + 0.5 * jnp.sum(momentum**2 - end_momentum**2, axis=1)
    # A trajectory into a region without a density, or a slope, is refused.
    sound = jnp.isfinite(log_ratio) & (jnp.max(jnp.abs(gradient), axis=1) < _LARGEST)
    log_ratio = jnp.where(sound, log_ratio, -jnp.inf)
    taken = jnp.log(jax.random.uniform(accept_key, (len(x),), x.dtype)) < log_ratio
    acceptance = jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))
    moved = Chains(
        jnp.where(taken[:, None], x, start),
        jnp.where(taken, log_density, chains.log_density),
        jnp.where(taken[:, None], gradient, chains.gradient),
        step_size * jnp.exp(acceptance - _ACCEPTANCE),
    )
    return moved, acceptance


def run_chains(
    density: Density,
    points: Float[np.ndarray, "groups dim"],
    factor: Float[np.ndarray, "dim dim"],
    key: PRNGKeyArray,
    agree: float,
    max_calls: int,
    kept_calls: int,
    stop: Callable[[], bool] = NEVER,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draws of chains that go on until they agree, or for so long; gradients there; R-hat."""
    dim, dtype = density.dim, density.dtype
    starts = np.repeat(points, GROUP_SIZE * NUM_GROUPS // len(points), axis=0)
    whole = Wide(*jax.device_put((np.zeros(dim, dtype), np.ones(dim, dtype), np.ones((), dtype))))
    stretch = jax.device_put(np.asarray(factor, dtype))
    values, gradients = density(starts)
    chains = as_chains(density.target, starts, values, gradients)
    kept: list[np.ndarray] = []
    slopes: list[np.ndarray] = []
    renewals = [WARM_CALLS * 2**i for i in range(16)]
    end, moves = max_calls, bound(advance, density.target)
    for call in range(max_calls):
        if call == end or (call >= _FEWEST_CALLS and stop()):
            break
        moved = moves(chains, whole, stretch, key, np.asarray(call))
        density.gradient_evaluations += GRADIENTS_PER_CALL
        chains = moved.chains
        kept.append(np.asarray(moved.places, float))
        slopes.append(np.asarray(moved.gradients, float))
        if call + 1 in renewals and call + 1 + kept_calls <= max_calls and call + 1 < end:
            # The newest moves tell where the mass is; what came before is forgotten.
            recent = np.concatenate(kept[len(kept) // 2 :])
            agreed = worst_rhat(recent) < agree
            if end == max_calls and agreed and call + 1 > WARM_CALLS:
                end = min(call + 1 + kept_calls, max_calls)
            factor = covariance_factor(recent, factor)
            stretch = jax.device_put(np.asarray(factor, dtype))
            kept, slopes = [], []
    first = len(kept) // 3 if end == max_calls else 0
    draws, gradients = np.concatenate(kept[first:]), np.concatenate(slopes[first:])
    thinning = max(1, len(draws) * len(starts) // _MAX_KEPT)
    return draws[::thinning], gradients[::thinning], worst_rhat(draws)


def covariance_factor(
    places: Float[np.ndarray, "moves chains dim"], factor: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "dim dim"]:
    """A square root of the draws' covariance, shrunk to the present one where they are few."""
    flat = places.reshape(-1, places.shape[-1])
    if not (flat.std(axis=0) > 0).all():
        return factor
    # In the present coordinates, where independence is the safe guess.
    z = np.linalg.solve(factor, (flat - flat.mean(axis=0)).T)
    count, dim = z.shape[1], z.shape[0]
    trust = count / (count + _ENOUGH_EACH * dim)
    empirical = z @ z.T / count
    shrunk = trust * empirical + (1.0 - trust) * np.diag(np.diag(empirical))
    return factor @ safe_cholesky(shrunk)


def worst_rhat(draws: Float[np.ndarray, "draws chains dim"]) -> float:
    """Nested R-hat of the worst coordinate; infinite where chains never moved."""
    rhat = nested_rhat(draws.swapaxes(0, 1), NUM_GROUPS, chance_removed=True)
    return float(np.max(np.where(draws.var(axis=0).max(axis=0) > 0, rhat, np.inf)))


def nested_rhat(
    values: Float[np.ndarray, "chains draws quantities"],
    num_groups: int,
    *,
    noise: Float[np.ndarray, " quantities"] | float = 0.0,
    chance_removed: bool = False,
) -> Float[np.ndarray, " quantities"]:
    """√(1 + B/W), B between groups of neighbouring chains, W inside them; 1 where B is 0.

    `noise` is variance that every draw has beside its value, as that of y around a predicted mean.
    `chance_removed` takes off B what groups of so many chains differ by where chains of a group
    differ as much as those of two groups.
    """
    num_chains, num_draws, _ = values.shape
    size = num_chains // num_groups
    grouped = values[: size * num_groups].reshape(num_groups, size, num_draws, -1)
    means = grouped.mean(axis=2)
    between = means.mean(axis=1).var(axis=0, ddof=1)
    inside = grouped.var(axis=2, ddof=1).mean(axis=(0, 1)) + noise
    if size > 1:
        of_chains = means.var(axis=1, ddof=1).mean(axis=0)
        inside = inside + of_chains
        if chance_removed:
            between = np.maximum(between - of_chains / size, 0.0)
    return rhat_of(between, inside)


def rhat_of(between: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """R-hat from variances; 1 where there is none between, as for an output that is dead."""
    with np.errstate(all="ignore"):
        return np.sqrt(1.0 + np.where(between == 0, 0.0, between / inside))
