"""Whitening by the draws' own moments, estimated again after each of several short trainings."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.nsfs import NSFS
from follmer.samplers import Flow
from follmer.targets import Affine, Target
from follmer.targets.affine import from_covariance
from follmer.warmup import Start

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
        affine = _whitening(draws, flattened(np.asarray(log_weights, float)), target)
        start = Start(affine, {}, "", None, gradients)
    words = f"whitened by the draws' moments, estimated {_ROUNDS} times"
    return start._replace(words=words)


def flattened(log_weights: np.ndarray) -> np.ndarray:
    """Normalised weights, raised to the largest power ≤ 1 that leaves enough draws effective."""
    logs = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    logs = logs - logs.max()
    low, high = 0.0, 1.0
    if _effective(logs) < _EFFECTIVE:
        for _ in range(30):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _effective(middle * logs) >= _EFFECTIVE else (low, middle)
        logs = np.where(np.isfinite(logs), low * logs, -np.inf)
    weights = np.exp(logs)
    return weights / weights.sum()


def _effective(logs: np.ndarray) -> float:
    weights = np.exp(logs[np.isfinite(logs)])
    return float(weights.sum() ** 2 / np.sum(weights**2) / len(logs))


def _whitening(draws: np.ndarray, weights: np.ndarray, target: Target) -> Affine:
    mean = weights @ draws
    deviations = draws - mean
    return from_covariance(mean, (deviations.T * weights) @ deviations, target.dtype)
