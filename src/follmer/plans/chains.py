"""Where the mass is when it is not around the mode: short chains, and the curvature along them.

The densest point of a hierarchical model is where local variables shrink as their scale grows, or
both shrink: far from nearly all of the mass, and of another shape. Chains leave it at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from follmer.mcmc import hmc
from follmer.plans.laplace import averaging, centring
from follmer.plans.probing import Probe, probe
from follmer.targets import Target
from follmer.targets.affine import Affine, dense_cost

_NUM_CHAINS = 32
_MOVES_PER_ROUND, _MAX_ROUNDS = 40, 5
# Chains begin near the mode, in units of its own widths.
_NEAR = 0.1
# Nats of ELBO that make another round worthwhile.
_GAIN = 1.0
_GRADIENTS_PER_ROUND = _NUM_CHAINS * _MOVES_PER_ROUND * (1 + hmc.NUM_LEAPFROG)
# Arithmetic for all rounds: some seconds.
_BUDGET = 5e11


class Wandered(NamedTuple):
    """The best Gaussian along the chains, what it finds of the target, and what it took."""

    affine: Affine
    found: Probe
    gradient_evaluations: int


def is_affordable(dim: int, cost: float) -> bool:
    """Whether chains take seconds, at so many operations per gradient."""
    return _MAX_ROUNDS * _GRADIENTS_PER_ROUND * (cost + dense_cost(dim)) <= _BUDGET


def wander(target: Target, affine: Affine, found: Probe, key: PRNGKeyArray) -> Wandered:
    """Move chains, and whiten by the mean curvature of where they are, in turns.

    They begin at the Gaussian that `affine` makes, of which `found` was found, and end when no
    better one is met.
    """
    start_key, probe_key, move_key = jax.random.split(key, 3)
    move = jax.jit(
        lambda particles, factor, step, key: hmc.move(
            target.log_density, particles, factor, step, _MOVES_PER_ROUND, key
        )
    )
    averaged, centred = averaging(target.log_density), centring(target.log_density)
    noise = _NEAR * jax.random.normal(start_key, (_NUM_CHAINS, target.dim), target.dtype)
    particles, step = jax.vmap(affine)(noise), jnp.full((), 0.5, target.dtype)
    best, spent = Wandered(affine, found, 0), 0
    for i in range(_MAX_ROUNDS):
        moved = move(particles, affine.matrix, step, jax.random.fold_in(move_key, i))
        particles, step = moved.particles, moved.step_size
        affine = centred(averaged(particles))
        found = probe(target, affine, probe_key)
        spent += _GRADIENTS_PER_ROUND + _NUM_CHAINS * target.dim
        if found.elbo > best.found.elbo + _GAIN:
            best = Wandered(affine, found, 0)
        elif i > 0:
            break
    return best._replace(gradient_evaluations=spent)
