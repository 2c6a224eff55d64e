"""Batch normalisation over paths: batch statistics in training, running ones in sampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import NSFS, InputError, Target
from follmer.drifts import BatchNormMLP
from follmer.paths import PATHS_AXIS
from follmer.process import Process

EPSILON = 1e-5
# Times that are among the 21 knots of the running statistics.
TIMES = jnp.array([0.0, 0.25, 0.5, 0.75])


@pytest.fixture(scope="module")
def drift():
    """Two hidden layers and a last one that is not zero."""
    drift = BatchNormMLP(2, width=5, depth=2, key=jax.random.key(0))
    last = eqx.nn.Linear(5, 2, key=jax.random.key(1))
    return eqx.tree_at(lambda drift: drift.stack.layers[-1], drift, last)


@pytest.fixture(scope="module")
def states():
    """Paths that all start at 0, as the diffusion's do."""
    steps = jax.random.normal(jax.random.key(2), (6, 3, 2))
    return jnp.concatenate([jnp.zeros((6, 1, 2)), jnp.cumsum(steps, 1)], axis=1)


@pytest.fixture(scope="module")
def tracked(drift, states):
    """The drift with the statistics of the states."""
    return drift.track(TIMES, states, 1.0)


def linear(layer, h):
    return h @ np.asarray(layer.weight, float).T + np.asarray(layer.bias, float)


def by_hand(drift, t, xs):
    """Hidden layers normalised over the rows of xs, and the statistics used."""
    h = np.column_stack([np.asarray(xs, float), np.full(len(xs), t)])
    seen = []
    for layer in drift.stack.layers[:-1]:
        h = linear(layer, h)
        mean, variance = h.mean(0), h.var(0)
        seen.append((mean, variance))
        h = np.logaddexp(0, (h - mean) / np.sqrt(variance + EPSILON))
    return linear(drift.stack.layers[-1], h), seen


def in_training(drift, t, xs):
    return jax.vmap(drift, (None, 0), axis_name=PATHS_AXIS)(jnp.asarray(t), xs)


def in_sampling(drift, t, xs):
    return jax.vmap(eqx.nn.inference_mode(drift), (None, 0))(jnp.asarray(t), xs)


def test_training_normalises_by_the_statistics_over_paths(drift, states):
    xs = states[:, 2]
    expected, _ = by_hand(drift, 0.5, xs)
    np.testing.assert_allclose(in_training(drift, 0.5, xs), expected, rtol=1e-4, atol=1e-5)


def test_training_couples_the_paths(drift, states):
    xs = states[:, 2]
    others_moved = xs.at[1:].add(1.0)
    before, after = in_training(drift, 0.5, xs)[0], in_training(drift, 0.5, others_moved)[0]
    assert np.max(np.abs(before - after)) > 1e-3


def test_sampling_uses_the_running_statistics(tracked, states):
    xs = states[:, 2]
    u = in_sampling(tracked, 0.5, xs)
    np.testing.assert_allclose(in_sampling(tracked, 0.5, xs[:1])[0], u[0], rtol=1e-5)
    shifted = eqx.tree_at(lambda d: d.stack.norms[0].running_mean, tracked, jnp.ones((21, 5)))
    assert np.max(np.abs(in_sampling(shifted, 0.5, xs) - u)) > 1e-3
    np.testing.assert_array_equal(in_training(shifted, 0.5, xs), in_training(tracked, 0.5, xs))


def test_tracking_moves_the_statistics_by_the_given_share(drift, tracked, states):
    moved = tracked.track(TIMES, states + 1.0, 0.25)
    for step, knot in enumerate([0, 5, 10, 15]):
        t = float(TIMES[step])
        before = by_hand(drift, t, states[:, step])[1]
        after = by_hand(drift, t, states[:, step] + 1.0)[1]
        for norm, old, new in zip(moved.stack.norms, before, after, strict=True):
            mean, variance = (0.75 * o + 0.25 * n for o, n in zip(old, new, strict=True))
            np.testing.assert_allclose(norm.running_mean[knot], mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(norm.running_variance[knot], variance, rtol=1e-4, atol=1e-5)


def test_tracking_leaves_the_weights_alone(drift, tracked):
    before, after = (jax.tree.leaves(one.stack.layers) for one in (drift, tracked))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_sampling_with_the_statistics_of_the_batch_agrees_with_training(tracked, states):
    for step in (1, 2, 3):
        t, xs = TIMES[step], states[:, step]
        np.testing.assert_allclose(
            in_sampling(tracked, t, xs), in_training(tracked, t, xs), rtol=1e-2, atol=1e-3
        )


def test_drift_and_gradient_are_finite_at_time_0_where_all_paths_agree(tracked):
    xs = jnp.zeros((6, 2))

    def loss(drift, run):
        return jnp.sum(run(drift, 0.0, xs) ** 2)

    for run in (in_training, in_sampling):
        value, gradient = eqx.filter_value_and_grad(loss)(tracked, run)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_a_running_mean_that_lags_is_not_magnified_at_time_0(tracked):
    xs = jnp.zeros((6, 2))
    learned_on = eqx.tree_at(
        lambda d: d.stack.layers[0].bias, tracked, replace_fn=lambda b: b + 0.1
    )
    np.testing.assert_allclose(
        in_sampling(learned_on, 0.0, xs), in_training(learned_on, 0.0, xs), atol=1e-2
    )


def test_running_statistics_get_no_gradient(tracked, states):
    def loss(drift):
        return jnp.sum(in_sampling(drift, 0.5, states[:, 2]) ** 2)

    gradient = eqx.filter_grad(loss)(tracked)
    for norm in gradient.stack.norms:
        np.testing.assert_array_equal(norm.running_mean, 0)
        np.testing.assert_array_equal(norm.running_variance, 0)


@pytest.fixture(scope="module")
def trained():
    """The algorithm after a few steps with batch normalisation."""
    target = Target(lambda x: -2 * jnp.sum((x - 1) ** 2), like=jnp.zeros(2))
    options = {"drift": "batch_norm_mlp", "drift_options": {"width": 5, "depth": 2}}
    algorithm = NSFS(
        target, num_steps=3, num_paths=8, learning_rate=0.05, step_rule="euler_maruyama", **options
    )
    step = jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0))
    for key in jax.random.split(jax.random.key(1), 5):
        state, _ = step(state, key)
    return algorithm, state


def test_draws_know_the_statistics_although_steps_do_not_keep_them(trained, monkeypatch):
    algorithm, state = trained
    assert np.all(np.asarray(state.average.stack.norms[0].running_variance) == 0)
    simulate, used = Process.simulate, []

    def seen(process, parameters, keys, *args):
        used.append((parameters, keys))
        return simulate(process, parameters, keys, *args)

    monkeypatch.setattr(Process, "simulate", seen)
    draws = algorithm.sample(state, jax.random.key(2), 8).position
    ((parameters, keys),) = used
    process = algorithm.process
    settled = process.with_statistics(state.average, 1000, jax.random.key(3))
    for norm, other in zip(parameters.stack.norms, settled.stack.norms, strict=True):
        # Standard errors of means of 20 · 8 paths, around statistics of 20 · 1000.
        error = np.sqrt(other.running_variance[1:] / 160)
        np.testing.assert_array_less(
            np.abs(norm.running_mean - other.running_mean)[1:], 5 * error + 1e-6
        )
        assert np.all(norm.running_variance[1:] > 0)
    without = simulate(process, state.average, keys)[0]
    assert np.max(np.abs(draws - without)) > 1e-3


def test_a_draw_does_not_depend_on_the_other_keys(trained):
    algorithm, state = trained
    keys = jax.random.split(jax.random.key(3), 8)
    others = keys.at[1:].set(jax.random.split(jax.random.key(4), 7))
    simulate = jax.jit(algorithm.process.simulate)
    for one, two in zip(
        simulate(state.average, keys), simulate(state.average, others), strict=True
    ):
        np.testing.assert_array_equal(one[0], two[0])
        assert not np.array_equal(one[1], two[1])


def test_objectives_with_a_memory_refuse_batch_norm():
    target = Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(2))
    with pytest.raises(InputError, match="BatchNorm"):
        NSFS(target, drift="batch_norm_mlp", objective="adjoint_matching")


def test_settling_forgets_the_statistics_of_an_earlier_drift(key):
    algorithm = NSFS(
        Target(lambda x: -0.5 * x @ x, like=jnp.zeros(2)),
        drift="batch_norm_mlp",
        drift_options={"width": 5, "depth": 1},
        num_steps=4,
        grid="uniform",
        step_rule="euler_maruyama",
        num_paths=32,
    )
    state = algorithm.init(key)
    assert algorithm.process.has_statistics
    # Untrained, the paths are Brownian: at t = ½ (knot 10) the first layer's inputs are known.
    layer = state.average.stack.layers[0]
    mean = layer.weight[:, 2] * 0.5 + layer.bias
    variance = 0.5 * jnp.sum(layer.weight[:, :2] ** 2, axis=1)

    def norm(state):
        return state.average.stack.norms[0]

    wrong = (jnp.tile(mean + 1.0, (21, 1)), jnp.ones((21, 5)))
    late = eqx.tree_at(lambda s: (norm(s).running_mean, norm(s).running_variance), state, wrong)
    settled = algorithm.process.with_statistics(late.average, 32, key).stack.norms[0]
    noise = np.sqrt(variance / (20 * 32))
    np.testing.assert_array_less(np.abs(settled.running_mean[10] - mean), 4 * noise)
    # The variance of 32 values has a relative standard deviation of about √(2/32).
    expected = (1 - 1 / 32) * variance
    np.testing.assert_array_less(
        np.abs(settled.running_variance[10] - expected), 4 * variance * np.sqrt(2 / (20 * 32))
    )
