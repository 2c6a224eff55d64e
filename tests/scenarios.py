"""The shared scenarios on which every objective, drift and path is tried.

All live in two dimensions, where quadrature gives the evidence and moments to many digits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import follmer

_norm = jax.scipy.stats.norm.logpdf


class Truth(NamedTuple):
    log_evidence: float
    mean: np.ndarray
    sd: np.ndarray
    tail: np.ndarray  # the share beyond one sd above the mean, in each coordinate
    untrained_gap: float  # ln Z less the ELBO of N(0, I), the process before training


def correlated_gaussian():
    mean, covariance = jnp.array([0.5, -0.4]), jnp.array([[0.8, 0.5], [0.5, 0.7]])
    return follmer.Target(
        lambda x: jax.scipy.stats.multivariate_normal.logpdf(x, mean, covariance),
        like=jnp.zeros(2),
    )


def funnel_lite():
    return follmer.Target(
        lambda x: _norm(x[0], 0.0, 0.8) + _norm(x[1], 0.0, 0.8 * jnp.exp(0.3 * x[0])),
        like=jnp.zeros(2),
    )


def two_near_modes():
    modes = jnp.array([[-0.9, 0.3], [0.9, -0.3]])
    return follmer.Target(
        lambda x: jax.nn.logsumexp(jnp.sum(_norm(x, modes, 0.6), 1), b=jnp.array([0.4, 0.6])),
        like=jnp.zeros(2),
    )


def logistic_regression():
    inputs = jnp.linspace(-2.0, 2.0, 20)
    labels = (jnp.sin(5 * inputs) + inputs > 0).astype(jnp.float32)
    return follmer.Target(
        log_prior=lambda theta: _norm(theta["slope"]) + _norm(theta["intercept"]),
        log_likelihood=lambda theta, batch: (
            -jax.nn.softplus((1 - 2 * batch[1]) * (theta["intercept"] + theta["slope"] * batch[0]))
        ),
        data=(inputs, labels),
        like={"intercept": 0.0, "slope": 0.0},
    )


SCENARIOS = {
    build.__name__: build
    for build in (correlated_gaussian, funnel_lite, two_near_modes, logistic_regression)
}


def truth(target: follmer.Target) -> Truth:
    """All of it by the trapezoidal rule on a square that holds the mass."""
    axis = jnp.linspace(-9.0, 9.0, 1801)
    points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log_p = np.asarray(jax.jit(jax.vmap(target.log_density))(points), float)
    points = np.asarray(points, float)
    weights = np.exp(log_p - log_p.max())
    log_evidence = log_p.max() + np.log(weights.sum() * float(axis[1] - axis[0]) ** 2)
    weights /= weights.sum()
    mean = weights @ points
    sd = np.sqrt(weights @ (points - mean) ** 2)
    tail = weights @ (points > mean + sd)
    log_reference = -0.5 * np.sum(points**2, axis=1) - np.log(2 * np.pi)
    reference = np.exp(log_reference) * float(axis[1] - axis[0]) ** 2
    return Truth(log_evidence, mean, sd, tail, log_evidence - reference @ (log_p - log_reference))
