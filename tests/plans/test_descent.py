"""Scales and a point where there are too many dimensions for more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace, norm

from follmer import Target
from follmer.plans import start as starting
from follmer.plans.descent import descend, probed_widths
from follmer.plans.start import by_point


def test_widths_of_a_product_of_normals_are_exact(key):
    sd = jnp.array([0.01, 1.0, 30.0])
    widths = probed_widths(lambda x: jnp.sum(norm.logpdf(x, 0.0, sd)), jnp.zeros(3), key)
    np.testing.assert_allclose(widths, sd, rtol=1e-4)


def test_a_laplace_prior_has_widths_too(key):
    widths = probed_widths(lambda x: jnp.sum(laplace.logpdf(x, 0.0, 2.0)), jnp.zeros(4), key)
    # The gradient turns by 1 over ± one width w: w = √(2w).
    np.testing.assert_allclose(widths, 2.0, rtol=0.2)


def test_a_flat_direction_gets_the_width_of_the_others(key):
    widths = probed_widths(lambda x: norm.logpdf(x[0]) + norm.logpdf(x[1]), jnp.zeros(3), key)
    np.testing.assert_allclose(widths, 1.0, rtol=1e-4)


def regression(num_rows=64):
    rows = jax.random.normal(jax.random.key(3), (num_rows, 2))
    return Target(
        log_prior=lambda w: jnp.sum(norm.logpdf(w)),
        log_likelihood=lambda w, batch: norm.logpdf(batch[1], batch[0] @ w, 1.0),
        data=(rows, rows @ jnp.array([1.0, -2.0])),
        like=jnp.zeros(2),
    )


def test_the_descent_ends_in_the_mode(key):
    target = regression()
    rows, y = (np.asarray(part) for part in target.data)
    mode = np.linalg.solve(rows.T @ rows + np.eye(2), rows.T @ y)
    options = {"num_iterations": 500, "learning_rate": 0.05}
    whole = descend(target, jnp.zeros(2), key, batch_size=None, **options)
    np.testing.assert_allclose(whole, mode, atol=1e-3)
    batched = descend(target, jnp.zeros(2), key, batch_size=32, **options)
    # y has no noise, so batches disagree by the prior's pull alone.
    np.testing.assert_allclose(batched, mode, atol=0.05)


def test_training_starts_narrowly_around_the_point(key):
    start = by_point(regression(), key)
    np.testing.assert_allclose(start.affine.mean, [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(start.affine.scale, 0.2, rtol=1e-3)
    assert start.settings["num_steps"] == 1
    assert "point estimate" in start.words


@pytest.mark.parametrize(("cost", "rows", "steps"), [(1.0, None, 4000), (1e10, 128, 1000)])
def test_cheap_gradients_buy_steps_and_dear_ones_take_batches(key, monkeypatch, cost, rows, steps):
    monkeypatch.setattr(starting, "gradient_cost", lambda target: cost)
    settings = by_point(regression(num_rows=300), key).settings
    assert (settings["batch_size"], settings["num_iterations"]) == (rows, steps)
