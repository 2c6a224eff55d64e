"""The paper's remark: the heat semigroup keeps products, so a product's Föllmer drift decouples."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import HeatSemigroup

GAMMA = 1.3
PLACES = [(0.0, [0.0, 0.0]), (0.4, [0.5, -0.7]), (0.9, [-0.4, 1.1])]


def log_left(x):
    """Two modes."""
    logs = jax.scipy.stats.norm.logpdf(x, jnp.array([-1.0, 0.8]), 0.5)
    return jax.nn.logsumexp(logs, b=jnp.array([0.3, 0.7]))


def log_right(x):
    """Heavier tails than a Gaussian's, and skewed."""
    return jax.scipy.stats.t.logpdf(x, 5.0, 0.3, 0.6) + jax.nn.log_sigmoid(2.0 * x)


def log_product(x):
    return log_left(x[0]) + log_right(x[1])


def log_tied(x):
    return log_product(x) - 0.5 * (x[0] - x[1]) ** 2


def over_reference(log_density):
    """ln f, f = p / N(0, γI)."""
    return lambda x: log_density(x) - jnp.sum(jax.scipy.stats.norm.logpdf(x, 0.0, GAMMA**0.5))


def foellmer_drift(log_density, dim, order=40):
    """γ∇ ln E f(x + √(1−t) z), z ~ N(0, γI), by Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    points = jnp.asarray(list(itertools.product(nodes, repeat=dim))) * GAMMA**0.5
    log_weights = jnp.log(jnp.asarray(list(itertools.product(weights, repeat=dim)))).sum(axis=1)
    log_f = over_reference(log_density)

    def log_semigroup(x, t):
        ahead = jax.vmap(log_f)(x + jnp.sqrt(1.0 - t) * points)
        return jax.nn.logsumexp(ahead + log_weights)

    return jax.jit(lambda t, x: GAMMA * jax.grad(log_semigroup)(x, t))


@pytest.mark.usefixtures("x64")
def test_a_products_drift_is_that_of_every_coordinate_alone():
    together = foellmer_drift(log_product, 2)
    alone = [foellmer_drift(lambda x, one=one: one(x[0]), 1) for one in (log_left, log_right)]
    tied = foellmer_drift(log_tied, 2)
    for t, x in PLACES:
        x = jnp.asarray(x)
        apart = jnp.concatenate([one(t, x[i : i + 1]) for i, one in enumerate(alone)])
        np.testing.assert_allclose(together(t, x), apart, rtol=1e-9)
        coupling = jax.jit(jax.jacobian(together, argnums=1))(t, x)
        assert abs(coupling[0, 1]) + abs(coupling[1, 0]) < 1e-9
        # The same two factors tied together: the drift is coupled, so the zeros say something.
        assert abs(jax.jit(jax.jacobian(tied, argnums=1))(t, x)[0, 1]) > 0.02


def test_the_library_estimates_that_drift():
    exact = foellmer_drift(log_product, 2)

    def estimate(key, t, x):
        return HeatSemigroup(over_reference(log_product), GAMMA, 4000, True, key)(t, x)

    estimate = jax.jit(jax.vmap(estimate, (0, None, None)))
    keys = jax.random.split(jax.random.key(0), 64)
    for t, x in PLACES:
        t, x = jnp.float32(t), jnp.asarray(x, jnp.float32)
        estimates = np.asarray(estimate(keys, t, x))
        se = estimates.std(axis=0) / np.sqrt(len(keys))
        # Self-normalisation adds a bias of order 1/4000, far below the 64-fold average's se.
        assert (np.abs(estimates.mean(axis=0) - exact(t, x)) < 4.5 * se).all()
        assert (se < 0.03).all()
