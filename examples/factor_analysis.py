"""Probabilistic PCA: a point's factors are its local variable, loadings and noise are global.

Given the globals the factors' posterior is known, θ_i ~ N(M⁻¹Wᵀ(x_i − μ), σ²M⁻¹) with
M = WᵀW + σ²I, so the sampled factors can be checked point by point.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer

NUM_OBSERVED, NUM_FACTORS = 6, 2


def loadings(phi: Any) -> jax.Array:
    """Factors could be rotated and reflected: a triangular top with a positive diagonal cannot."""
    return jnp.concatenate([phi["top"], phi["rest"]])


def simulated(num_points: int, key: jax.Array) -> jax.Array:
    factor_key, noise_key = jax.random.split(key)
    weights = jnp.array([[1.5, 0.0], [0.5, 1.2], [1.0, -0.6], [-0.8, 0.9], [0.3, 1.0], [1.1, 0.2]])
    factors = jax.random.normal(factor_key, (num_points, NUM_FACTORS))
    noise = 0.7 * jax.random.normal(noise_key, (num_points, NUM_OBSERVED))
    return jnp.linspace(-1, 1, NUM_OBSERVED) + factors @ weights.T + noise


def model(points: jax.Array) -> follmer.StructuredTarget:
    def log_prior_global(phi: Any) -> jax.Array:
        wide = [norm.logpdf(phi["mean"], 0, 3), norm.logpdf(loadings(phi), 0, 2)]
        return sum(map(jnp.sum, wide)) + norm.logpdf(phi["noise"], 0, 2)

    return follmer.StructuredTarget(
        log_prior_global=log_prior_global,
        log_prior_local=lambda factors, phi: jnp.sum(norm.logpdf(factors)),
        log_likelihood=lambda factors, phi, x: jnp.sum(
            norm.logpdf(x, phi["mean"] + loadings(phi) @ factors, phi["noise"])
        ),
        data=points,
        like_global={
            "top": jnp.eye(NUM_FACTORS),
            "rest": jnp.zeros((NUM_OBSERVED - NUM_FACTORS, NUM_FACTORS)),
            "mean": jnp.zeros(NUM_OBSERVED),
            "noise": 1.0,
        },
        like_local=jnp.zeros(NUM_FACTORS),
        constraints={"global": {"top": constraints.lower_cholesky, "noise": constraints.positive}},
    )


def exact_factors(phi: Any, points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Means and variances of the points' factors for one draw of the globals."""
    weights, variance = loadings(phi), phi["noise"] ** 2
    inverse = jnp.linalg.inv(weights.T @ weights + variance * jnp.eye(NUM_FACTORS))
    means = (points - phi["mean"]) @ weights @ inverse
    return means, jnp.broadcast_to(variance * jnp.diag(inverse), means.shape)


def worst_errors(factors: Any, phi: Any, weights: Any, points: jax.Array) -> tuple[float, float]:
    """Of the factors' means, in standard deviations, and of their sds, relative.

    The truth is the mixture of the exact posteriors of all draws of the globals.
    """
    means, variances = (np.asarray(x) for x in jax.vmap(exact_factors, (0, None))(phi, points))

    def average(values: Any) -> np.ndarray:
        return np.tensordot(weights, np.asarray(values), 1)

    truth, found = average(means), average(factors)
    truth_sd = np.sqrt(average(variances) + average((means - truth) ** 2))
    found_sd = np.sqrt(average((np.asarray(factors) - found) ** 2))
    return np.max(abs(found - truth) / truth_sd), np.max(abs(found_sd / truth_sd - 1))


def run(num_points: int, num_draws: int, key: jax.Array, **options: Any) -> dict[str, Any]:
    data_key, new_key, fit_key, draw_key = jax.random.split(key, 4)
    points, new_points = simulated(num_points, data_key), simulated(num_points // 3, new_key)
    posterior = follmer.fit(model(points), key=fit_key, **options)
    draws = posterior.weighted_sample(num_draws, key=draw_key)
    weights = np.exp(follmer.diagnostics.pareto_smooth(draws.log_weights)[0])
    phi = draws.position["global"]
    new_factors = posterior.sample_local(num_draws, key=draw_key, data=new_points)
    return {
        "posterior": posterior,
        "own": worst_errors(draws.position["local"], phi, weights, points),
        "new": worst_errors(new_factors, phi, weights, new_points),
    }


def main() -> None:
    found = run(num_points=300, num_draws=16384, key=jax.random.key(0))
    summary = found["posterior"].summary(key=jax.random.key(1))
    print(summary[summary.index("ELBO") :], end="\n\n")
    for name, (mean, sd) in (("300 points", found["own"]), ("100 new points", found["new"])):
        print(f"factors of {name} against the exact ones, the worst of all: ", end="")
        print(f"mean off by {mean:.3f} sd, sd off by {100 * sd:.1f} %")


if __name__ == "__main__":
    main()
