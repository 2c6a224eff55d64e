"""Scales and a point where there are too many dimensions for more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace, norm

from follmer import Target
from follmer.plans import Survey
from follmer.plans.mean_field import descend, mean_field, probed_widths
from follmer.tools.modules import replaced


def widths(log_density, dim, key):
    return probed_widths(Target(log_density, like=jnp.zeros(dim)), np.zeros(dim), key)


def test_widths_of_a_product_of_normals_are_exact(key):
    sd = jnp.array([0.01, 1.0, 30.0])
    found = widths(lambda x: jnp.sum(norm.logpdf(x, 0.0, sd)), 3, key)
    np.testing.assert_allclose(found, sd, rtol=1e-4)


def test_a_laplace_prior_has_widths_too(key):
    found = widths(lambda x: jnp.sum(laplace.logpdf(x, 0.0, 2.0)), 4, key)
    # The gradient turns by 1 over ± one width w: w = √(2w).
    np.testing.assert_allclose(found, 2.0, rtol=0.2)


def test_a_flat_direction_gets_the_width_of_the_others(key):
    found = widths(lambda x: norm.logpdf(x[0]) + norm.logpdf(x[1]), 3, key)
    np.testing.assert_allclose(found, 1.0, rtol=1e-4)


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
    survey = Survey(regression(), key)
    plan = mean_field(survey, key)
    np.testing.assert_allclose(plan.target.affine.mean, [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(plan.target.affine.scale, 0.2, rtol=1e-3)
    assert plan.settings["num_steps"] == 1
    assert "point estimate" in plan.why
    assert survey.density.gradient_evaluations > 1000


@pytest.mark.parametrize(("cost", "rows", "steps"), [(1.0, None, 4000), (1e10, 128, 1000)])
def test_cheap_gradients_buy_steps_and_expensive_ones_take_batches(key, cost, rows, steps):
    target = replaced(regression(num_rows=300), gradient_cost=cost)
    settings = mean_field(Survey(target, key), key).settings
    assert (settings["batch_size"], settings["num_iterations"]) == (rows, steps)
