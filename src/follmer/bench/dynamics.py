"""Posteriors of dynamics, on simulated data: an ordinary differential equation, a hidden chain."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree

from follmer.targets import Target

# Steps of the fourth-order Runge–Kutta method between two observations.
_STEPS = 20
# Years of hares and lynxes, and how they are: birth and death rates, first counts, noise.
_YEARS = 20
_RATES, _FIRST, _NOISE = (0.55, 0.028, 0.80, 0.024), (30.0, 5.0), 0.25
# Observations of the hidden chain, chances to stay in each state, and their means.
_LENGTH, _STAYS, _MEANS = 200, (0.9, 0.8), (-1.0, 2.0)


def lotka_volterra() -> Target:
    """Hares and lynxes over 20 years, all seven parameters unknown, in logarithms."""
    centre = jnp.log(jnp.array([*_RATES, *_FIRST, _NOISE]))
    width = jnp.array([0.5] * 4 + [0.5] * 2 + [0.5])
    exact = np.asarray(_populations(jnp.array(_RATES), jnp.array(_FIRST)))
    rng = np.random.default_rng(0)
    seen = jnp.asarray(np.log(exact) + _NOISE * rng.normal(size=exact.shape))

    def log_density(x: Float[Array, " 7"]) -> Float[Array, ""]:
        theta = jnp.exp(x)
        log_prior = jnp.sum(norm.logpdf(x, centre, width))
        mean = jnp.log(_populations(theta[:4], theta[4:6]))
        return log_prior + jnp.sum(norm.logpdf(seen, mean, theta[6]))

    return Target(log_density, like=jnp.zeros(7))


def _populations(
    rates: Float[Array, " 4"], first: Float[Array, " 2"]
) -> Float[Array, "years species"]:
    birth, eaten, death, fed = rates

    def slope(counts: Float[Array, " 2"]) -> Float[Array, " 2"]:
        hares, lynxes = counts
        return jnp.stack([(birth - eaten * lynxes) * hares, (fed * hares - death) * lynxes])

    def step(counts: Array, _: None) -> tuple[Array, None]:
        dt = 1.0 / _STEPS
        one = slope(counts)
        two = slope(counts + 0.5 * dt * one)
        three = slope(counts + 0.5 * dt * two)
        four = slope(counts + dt * three)
        moved = counts + dt / 6.0 * (one + 2.0 * two + 2.0 * three + four)
        # Rates far from the data's may make a step overshoot.
        return jnp.maximum(moved, 1e-6), None

    def year(counts: Array, _: None) -> tuple[Array, Array]:
        counts, _ = jax.lax.scan(step, counts, None, length=_STEPS)
        return counts, counts

    return jax.lax.scan(year, first, None, length=_YEARS)[1]


def hidden_chain() -> Target:
    """Two hidden states, summed out: chances to stay, means in order, a common noise."""
    from numpyro.distributions import constraints

    rng, state, seen = np.random.default_rng(1), 0, []
    for _ in range(_LENGTH):
        state = state if rng.uniform() < _STAYS[state] else 1 - state
        seen.append(_MEANS[state] + rng.normal())

    def log_density(theta: PyTree) -> Float[Array, ""]:
        stay, means, noise = theta["stay"], theta["means"], theta["noise"]
        log_prior = jnp.sum(norm.logpdf(means, 0.0, 3.0)) + norm.logpdf(noise, 0.0, 2.0)
        log_prior += jnp.sum(jnp.log(stay))
        chances = jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])])
        emission = norm.logpdf(jnp.asarray(seen)[:, None], means, noise)

        def step(forward: Array, row: Array) -> tuple[Array, None]:
            return row + jax.nn.logsumexp(forward[:, None] + jnp.log(chances), axis=0), None

        forward, _ = jax.lax.scan(step, emission[0] - jnp.log(2.0), emission[1:])
        return log_prior + jax.nn.logsumexp(forward)

    return Target(
        log_density,
        like={"stay": jnp.full(2, 0.5), "means": jnp.array([-1.0, 1.0]), "noise": 1.0},
        constraints={
            "stay": constraints.unit_interval,
            "means": constraints.ordered_vector,
            "noise": constraints.positive,
        },
    )
