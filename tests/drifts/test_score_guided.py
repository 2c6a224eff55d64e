"""The drift that sees the target's own score."""

import jax
import jax.numpy as jnp
import numpy as np

from follmer.drifts import ScoreGuided, guide


def test_it_starts_at_the_score_at_every_time(key):
    def score(x):
        return jnp.sin(x)

    drift = guide(ScoreGuided(3, width=8, key=key), score)
    x = jax.random.normal(key, (3,))
    for t in (0.0, 0.4, 1.0):
        np.testing.assert_allclose(drift(jnp.asarray(t), x).u, score(x), rtol=1e-6)


def test_without_a_score_it_starts_at_rest(key):
    control = ScoreGuided(3, width=8, key=key)(jnp.asarray(0.5), jnp.ones(3))
    np.testing.assert_array_equal(control.u, 0.0)


def test_scores_that_are_huge_or_not_finite_do_not_shoot(key):
    drift = guide(ScoreGuided(2, width=8, key=key), lambda x: jnp.array([1e30, jnp.nan]))
    assert np.abs(drift(jnp.asarray(0.5), jnp.ones(2)).u).max() <= 10.0
