"""Whitening by the draws' own moments, estimated again after each of several short trainings."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.mcmc.resampling import largest_power, weighted_moments
from follmer.nsfs import NSFS
from follmer.plans.start import Start
from follmer.posterior.samplers import Flow
from follmer.targets import Target
from follmer.targets.affine import from_covariance

_ROUNDS = 3
_ITERATIONS = 200
_NUM_DRAWS = 2048
# Weights are flattened until this share of the draws is effective: a few draws have no moments.
_EFFECTIVE = 0.25


def by_moments(
    target: Target, train: Callable[[NSFS], Flow], make: Callable[[Start], NSFS], key: PRNGKeyArray
) -> Start:
    """Train briefly, whiten by the weighted draws' mean and covariance, and so on."""
    start, gradients = Start(None, {}, ""), 0
    for round_key in jax.random.split(key, _ROUNDS):
        algorithm = make(start)
        iterations = min(_ITERATIONS, algorithm.num_iterations)
        algorithm = dataclasses.replace(algorithm, num_iterations=iterations)
        flow = train(algorithm)
        x, log_weights = flow.sample(_NUM_DRAWS, round_key, None, target.data)
        gradients += algorithm.gradient_evaluations(iterations)
        draws = np.asarray(x if start.affine is None else jax.vmap(start.affine)(x), float)
        mean, covariance = weighted_moments(draws, flattened(log_weights))
        affine = from_covariance(mean, covariance, target.dtype)
        start = Start(affine, {}, "", None, gradients)
    words = f"whitened by the draws' moments, estimated {_ROUNDS} times"
    return start._replace(words=words)


def flattened(log_weights: Float[Array, " draws"]) -> Float[np.ndarray, " draws"]:
    """Normalised weights, raised to the largest power ≤ 1 that leaves enough draws effective."""
    logs = jnp.where(jnp.isfinite(log_weights), log_weights, -jnp.inf)
    return np.asarray(jax.nn.softmax(largest_power(logs, 1.0, _EFFECTIVE) * logs), float)
