"""Gradients through many paths at once are those of plain autodiff.

In float64: BatchNorm divides by the spread of paths that all start at 0, and rounding errors grow.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import MLP, BatchNormMLP, TimeMLP
from follmer.objectives import LogVariance, Problem, as_objective
from follmer.paths import (
    PATHS_AXIS,
    STEPS,
    Diffusion,
    GaussianGuess,
    grid_times,
    simulate,
    uniform,
)
from follmer.paths.deferred import Deferred
from follmer.tools.normals import standard_normals

DIM, NUM_PATHS, KEY = 3, 4, jax.random.key(7)

pytestmark = pytest.mark.usefixtures("x64")


class Tokens(eqx.Module):
    """One layer for every coordinate, used twice; a weight on the right; and one inside a jit."""

    shared: eqx.nn.Linear
    right: jax.Array
    jitted: jax.Array

    def __init__(self, key):
        first, second, third = jax.random.split(key, 3)
        self.shared = eqx.nn.Linear(2, 2, key=first)
        self.right = jax.random.normal(second, (2 * DIM, DIM))
        self.jitted = jax.random.normal(third, (DIM, DIM))

    def __call__(self, t, x):
        tokens = jnp.stack([x, jnp.broadcast_to(t, x.shape)], 1)
        hidden = jax.vmap(lambda row: self.shared(jnp.tanh(self.shared(row))))(tokens)
        return jax.jit(lambda x, w: w @ x)(jnp.sin(hidden.ravel() @ self.right), self.jitted)


def networks():
    options = {"width": 8, "key": jax.random.key(0)}
    yield "mlp", "euler_maruyama", MLP(DIM, **options)
    yield "batch_norm", "euler_maruyama", BatchNormMLP(DIM, **options)
    yield "guess", "h_transform", GaussianGuess(TimeMLP(DIM, **options), DIM, jnp.float32)
    yield "tokens", "euler_maruyama", Tokens(jax.random.key(1))


def perturbed(drift):
    """Last layers start at zero: moved, so that every parameter has a gradient."""
    arrays, rest = eqx.partition(drift, eqx.is_inexact_array)
    arrays = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), arrays)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    moved = [x + 0.3 * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(tree, moved), rest)


def problem(step, num_steps):
    diffusion = Diffusion(DIM, 1.0, grid_times(uniform, num_steps), jnp.float64, STEPS[step])

    def log_density(x):
        return -jnp.sum((x - jnp.arange(1.0, DIM + 1)) ** 2) - 0.1 * jnp.sum(x**4)

    return Problem(
        diffusion, log_density, lambda x: log_density(x) - diffusion.log_reference(x), NUM_PATHS
    )


def plainly_simulated(drift, case, key):
    """The same paths, one at a time and by plain autodiff."""
    shape = (case.diffusion.num_steps, NUM_PATHS, DIM)
    noise = jnp.swapaxes(standard_normals(key, shape, jnp.float64), 0, 1)
    run = jax.vmap(lambda one: simulate(drift, case.diffusion, one), axis_name=PATHS_AXIS)
    return run(noise)


def plain_loss(name, drift, case, key):
    paths = plainly_simulated(drift, case, key)
    terminal = case.log_terminal(paths.end)
    if name == "det":
        return jnp.mean(paths.kl - terminal)
    if name == "log_variance":
        paths, terminal = jax.lax.stop_gradient((paths, terminal))
        return jnp.var(terminal + case.log_ratio(drift, paths), ddof=1)
    loss = -jnp.mean(terminal + paths.log_ratio)
    if name == "relative_entropy":
        return loss
    # Sticking the landing: less the score of the path taken as data.
    score = case.log_ratio(drift, paths)
    return loss + jnp.mean(score - jax.lax.stop_gradient(score))


OBJECTIVES = ["det", "relative_entropy", "stl", "log_variance"]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("step", "drift"), [pytest.param(*c[1:], id=c[0]) for c in networks()])
def test_gradients_are_those_of_plain_autodiff(objective, step, drift):
    case = problem(step, 5)
    arrays, rest = eqx.partition(perturbed(drift), eqx.is_inexact_array)
    rule = LogVariance() if objective == "log_variance" else as_objective(objective)

    def ours(arrays):
        return rule.loss(eqx.combine(arrays, rest), case, None, KEY)[0]

    def plain(arrays):
        return plain_loss(objective, eqx.combine(arrays, rest), case, KEY)

    (loss, gradient), (wanted, expected) = (
        jax.jit(jax.value_and_grad(one))(arrays) for one in (ours, plain)
    )
    np.testing.assert_allclose(loss, wanted, rtol=1e-9)
    # Biases before BatchNorm have a gradient of 0 up to rounding; at t = 0, where all paths agree,
    # each of its four layers makes rounding errors 1/√1e-5 as large.
    rounding = np.finfo(float).eps * (1e-5**-0.5) ** 4
    largest = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(expected))
    for found, truth in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=rounding * largest)


def test_every_layer_is_deferred():
    drift = MLP(DIM, width=8, key=KEY)

    def batched(x):
        return jax.vmap(lambda one: drift(jnp.zeros(()), one))(x)

    deferred = Deferred(batched, jnp.zeros((NUM_PATHS, DIM)))
    assert len(deferred.taps()) == len(drift.stack.layers)


def test_states_and_increments_can_be_differentiated():
    case = problem("euler_maruyama", 5)
    drift = perturbed(MLP(DIM, width=8, key=KEY))

    def total(simulated, weight):
        moved = eqx.tree_at(lambda one: one.stack.layers[0].weight, drift, weight)
        paths = simulated(moved)
        return jnp.sum(paths.states**2) + jnp.sum(jnp.sin(paths.increments))

    weight = drift.stack.layers[0].weight
    found, expected = (
        jax.grad(lambda weight, one=one: total(one, weight))(weight)
        for one in (
            lambda moved: case.simulate(moved, KEY),
            lambda moved: plainly_simulated(moved, case, KEY),
        )
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("num_steps", [64, 70])
def test_long_paths_in_segments_are_differentiated_as_a_whole(num_steps):
    """The segments' noise is another; given the paths' own, plain autodiff agrees."""
    case = problem("euler_maruyama", num_steps)
    arrays, rest = eqx.partition(perturbed(MLP(DIM, width=8, key=KEY)), eqx.is_inexact_array)

    def ours(arrays):
        paths = case.simulate(eqx.combine(arrays, rest), KEY, "log_ratio")
        return -jnp.mean(case.log_terminal(paths.end) + paths.log_ratio), paths

    gradient, paths = jax.jit(jax.grad(ours, has_aux=True))(arrays)

    def noise_of(states, increments):
        def one(t, dt, x, increment):
            drift = eqx.combine(arrays, rest)
            return increment - case.diffusion.step(drift, 1.0, t, dt, x).shift

        return jax.vmap(one)(case.diffusion.starts, case.diffusion.lengths, states, increments)

    noise = jax.vmap(noise_of)(paths.states, paths.increments)
    np.testing.assert_allclose(jnp.std(noise), 1.0, atol=4 * (2 * noise.size) ** -0.5)

    def plain(arrays):
        drift = eqx.combine(arrays, rest)
        again = jax.vmap(lambda one: simulate(drift, case.diffusion, one))(noise)
        return -jnp.mean(case.log_terminal(again.end) + again.log_ratio)

    expected = jax.jit(jax.grad(plain))(arrays)
    for found, truth in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        scale = float(jnp.max(jnp.abs(truth)))
        np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-8 * scale)
