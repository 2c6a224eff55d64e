"""The algorithm's three pure functions, what they accept and what they refuse."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from follmer import NSFS, InputError, State, Target
from follmer.drifts import DRIFTS
from follmer.objectives import OBJECTIVES, BridgeMatching, LogVariance, det
from follmer.paths import STEPS

DATA = jnp.array([0.2, 1.0, 1.4, 0.6])


def log_normal(x, mean, sd):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, mean, sd))


@pytest.fixture(scope="module")
def target():
    return Target(lambda x: log_normal(x, 0.5, 0.7), like=jnp.zeros(2))


@pytest.fixture(scope="module")
def data_target():
    return Target(
        log_prior=lambda x: log_normal(x, 0.0, 1.0),
        log_likelihood=lambda x, y: jax.scipy.stats.norm.logpdf(y, x[0], 0.5),
        data=DATA,
        like=jnp.zeros(1),
    )


class Affine(eqx.Module):
    """A drift that compiles fast."""

    rate: jax.Array
    shift: jax.Array

    def __init__(self, dim=2, rate=0.1, shift=0.1):
        self.rate = jnp.asarray(rate)
        self.shift = jnp.full(dim, shift)

    def __call__(self, t, x):
        return self.shift - self.rate * x


SMALL = {
    "num_steps": 3,
    "num_paths": 4,
    "num_iterations": 50,
    "step_rule": "euler_maruyama",
}
NAMED = {**SMALL, "drift": "mlp", "drift_options": {"width": 4, "depth": 1}}


@pytest.fixture(scope="module")
def algorithm(target):
    return NSFS(target, **NAMED, average_decay=0.6)


@pytest.fixture(scope="module")
def step(algorithm):
    return jax.jit(algorithm.step)


@pytest.fixture(scope="module")
def sample(algorithm):
    return jax.jit(algorithm.sample, static_argnums=(2, 3))


@pytest.fixture(scope="module")
def states(algorithm, step):
    """Five states in a row, the first untrained."""
    states = [algorithm.init(jax.random.key(0))]
    for key in jax.random.split(jax.random.key(1), 4):
        states.append(step(states[-1], key)[0])
    return states


def assert_same(one, two):
    """Equal bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def assert_close(one, two, rtol=1e-4, atol=1e-5):
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def distance(one, two):
    return float(optax.tree.norm(jax.tree.map(jnp.subtract, one, two)))


def affine_steps(target, count, **options):
    """The states of `count` compiled steps with the small drift."""
    algorithm = NSFS(target, drift=Affine(), **{**SMALL, **options})
    step = jax.jit(algorithm.step)
    states = [algorithm.init(jax.random.key(0))]
    for key in jax.random.split(jax.random.key(1), count):
        states.append(step(states[-1], key)[0])
    return states


def test_init_step_and_sample_are_pure(algorithm, step, sample, states, key):
    assert_same(algorithm.init(key), algorithm.init(key))
    assert_same(step(states[1], key), step(states[1], key))
    assert_same(sample(states[1], key, 4), sample(states[1], key, 4))


def test_another_key_gives_another_result(algorithm, step, sample, states, key):
    other = jax.random.key(99)
    assert distance(algorithm.init(key).parameters, algorithm.init(other).parameters) > 0.1
    assert float(step(states[1], key)[1].loss) != float(step(states[1], other)[1].loss)
    one, two = (sample(states[1], k, 4).position for k in (key, other))
    assert not np.any(one == two)


def test_compiled_step_agrees_with_plain_step(target, key):
    algorithm = NSFS(target, drift=Affine(), **SMALL)
    state = algorithm.init(key)
    assert_close(jax.jit(algorithm.step)(state, key), algorithm.step(state, key))


def test_compiled_sample_agrees_with_plain_sample(algorithm, sample, states, key):
    assert_close(sample(states[2], key, 4), algorithm.sample(states[2], key, 4))


def test_ensemble_by_vmap_agrees_with_single_runs(algorithm, step):
    init_keys, *step_keys = (jax.random.split(jax.random.key(i), 3) for i in range(3))
    ensemble = jax.vmap(algorithm.init)(init_keys)
    together = jax.jit(jax.vmap(algorithm.step))
    for keys in step_keys:
        ensemble, infos = together(ensemble, keys)
    for i in range(3):
        state = algorithm.init(init_keys[i])
        for keys in step_keys:
            state, info = step(state, keys[i])
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], (ensemble, infos)), (state, info))


def test_state_is_a_pytree_of_arrays(states):
    for state in states[:2]:
        assert isinstance(state, State)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))


def test_iteration_counts_the_steps(states):
    assert [int(state.iteration) for state in states] == [0, 1, 2, 3, 4]


# The score-guided drift starts at the score.
@pytest.mark.parametrize("drift", sorted(set(DRIFTS) - {"score_guided"}))
def test_untrained_process_is_brownian_motion(drift, target):
    gamma, count = 2.0, 4000
    drift_options = {} if drift == "zero" else {"width": 8}
    options = {"gamma": gamma, "drift_options": drift_options, **SMALL}
    algorithm = NSFS(target, drift=drift, **options)
    state = algorithm.init(jax.random.key(0))
    x, log_weights = jax.jit(algorithm.sample, static_argnums=2)(state, jax.random.key(1), count)
    expected = jax.vmap(lambda x: log_normal(x, 0.5, 0.7) - log_normal(x, 0.0, gamma**0.5))(x)
    np.testing.assert_allclose(log_weights, expected, rtol=1e-4, atol=1e-4)
    # 4 standard errors of a mean and of a variance of N(0, gamma).
    np.testing.assert_allclose(x.mean(0), 0, atol=4 * np.sqrt(gamma / count))
    np.testing.assert_allclose(x.var(0), gamma, atol=4 * gamma * np.sqrt(2 / count))


def test_sample_is_constrained(key):
    from numpyro.distributions import constraints

    target = Target(
        lambda theta: -theta["rate"],
        like={"rate": 1.0},
        constraints={"rate": constraints.positive},
    )
    algorithm = NSFS(target, drift=lambda t, x: -x, **SMALL)
    draws = algorithm.sample(algorithm.init(key), key, 16)
    assert draws.position["rate"].shape == (16,)
    assert np.all(draws.position["rate"] > 0)


def test_equinox_module_is_trained(target, key):
    class Network(eqx.Module):
        layers: eqx.nn.MLP

        def __call__(self, t, x):
            return self.layers(jnp.append(x, t))

    drift = Network(eqx.nn.MLP(3, 2, width_size=4, depth=1, key=key))
    algorithm = NSFS(target, drift=drift, **SMALL)
    state = algorithm.init(key)
    assert_same(jax.tree.leaves(state.parameters), jax.tree.leaves(eqx.filter(drift, eqx.is_array)))
    after, info = jax.jit(algorithm.step)(state, key)
    assert distance(after.parameters, state.parameters) > 1e-3
    assert not info.skipped


def test_equinox_module_in_other_precision_is_cast_to_the_target(target, key):
    drift = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), Affine())
    state = NSFS(target, drift=drift, **SMALL).init(key)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.parameters)} == {jnp.dtype("float32")}


def test_plain_function_as_drift_has_nothing_to_train(target, key):
    algorithm = NSFS(target, drift=lambda t, x: 0.5 - x, **SMALL)
    state = algorithm.init(key)
    assert jax.tree.leaves(state.parameters) == []
    state, info = jax.jit(algorithm.step)(state, key)
    assert int(state.iteration) == 1
    assert np.isfinite(info.elbo)


@pytest.mark.parametrize("num_steps", [None, 1, 7])
def test_weights_are_unbiased_for_any_number_of_steps(target, num_steps):
    algorithm = NSFS(target, drift=lambda t, x: 0.5 - 0.5 * x, **SMALL)
    sample = jax.jit(algorithm.sample, static_argnums=(2, 3))
    draws = sample(algorithm.init(jax.random.key(0)), jax.random.key(1), 4000, num_steps)
    weights = np.exp(np.asarray(draws.log_weights, float))
    # The target is normalised: E[w] = Z = 1, within 4 standard errors.
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(weights.size)
    assert weights.std() < 2


def test_sample_on_more_steps_is_another_discretisation(sample, states, key):
    trained = states[4]
    three, same, five = (sample(trained, key, 4, k) for k in (None, 3, 5))
    assert_same(three, same)
    assert five.position.shape == (4, 2)
    assert not np.any(five.position == three.position)


def test_own_objective_function_is_used_as_it_is(target, key):
    def own(drift, problem, key):
        return det(drift, problem, key)

    by_name, by_function = (
        NSFS(target, drift=Affine(), objective=objective, **SMALL) for objective in ("det", own)
    )
    state = by_name.init(key)
    assert_same(jax.jit(by_name.step)(state, key), jax.jit(by_function.step)(state, key))


def test_own_objective_loss_is_what_is_minimised(target, key):
    def far_from_three(drift, problem, key):
        paths = problem.simulate(drift, key)
        return jnp.mean((paths.end - 3) ** 2), problem.log_terminal(paths.end)

    states = affine_steps(target, 2, objective=far_from_three, optimizer=optax.sgd(0.1))
    assert np.all(states[1].parameters.shift > states[0].parameters.shift)
    assert np.all(states[2].parameters.shift > states[1].parameters.shift)


def test_info_tells_loss_and_elbo_of_the_steps_own_paths(target, key):
    algorithm = NSFS(target, drift=Affine(), objective="relative_entropy", **SMALL)
    _, info = jax.jit(algorithm.step)(algorithm.init(key), key)
    np.testing.assert_allclose(info.loss, -info.elbo, rtol=1e-6)
    assert info.gradient_norm > 0
    assert not info.skipped


def test_average_follows_the_hand_computed_recursion(states):
    # Decay 0.6: a plain mean while 1/n > 0.4, then 0.6 old + 0.4 new.
    weights = [1, 1 / 2, 0.4, 0.4]
    expected = jax.tree.map(np.zeros_like, states[0].parameters)
    for weight, state in zip(weights, states[1:], strict=True):
        expected = jax.tree.map(
            lambda old, new, w=weight: (1 - w) * old + w * new, expected, state.parameters
        )
        assert_close(state.average, expected, rtol=1e-5, atol=1e-7)


def test_average_is_what_sample_uses(sample, states, key):
    trained = states[4]
    other = trained._replace(parameters=states[0].parameters)
    assert_same(sample(trained, key, 4), sample(other, key, 4))
    other = trained._replace(average=states[0].average)
    assert not np.any(sample(trained, key, 4).position == sample(other, key, 4).position)


def infinite_with_finite_gradient(drift, problem, key):
    loss, log_weights = det(drift, problem, key)
    return loss + jnp.inf, log_weights


def nan_loss(drift, problem, key):
    loss, log_weights = det(drift, problem, key)
    return loss * jnp.nan, log_weights


def finite_with_nan_gradient(drift, problem, key):
    loss, log_weights = det(drift, problem, key)
    return loss + jnp.sqrt(0 * loss), log_weights


BROKEN = [infinite_with_finite_gradient, nan_loss, finite_with_nan_gradient]


@pytest.mark.parametrize("broken", BROKEN)
def test_non_finite_step_is_skipped_and_flagged(target, key, broken):
    good, bad = (
        NSFS(target, drift=Affine(), objective=objective, **SMALL) for objective in (det, broken)
    )
    state, info = jax.jit(good.step)(good.init(key), key)
    assert not info.skipped
    after, info = jax.jit(bad.step)(state, key)
    assert info.skipped
    assert_same(after.parameters, state.parameters)
    assert_same(after.optimizer_state.inner_state, state.optimizer_state.inner_state)
    assert int(after.optimizer_state.notfinite_count) == 1
    assert int(after.iteration) == 2


def test_non_finite_step_leaves_running_statistics_untouched(target, key):
    options = {"drift": "batch_norm_mlp", "drift_options": {"width": 4, "depth": 1}}
    algorithm = NSFS(target, objective=nan_loss, **{**SMALL, **options})
    state = algorithm.init(key)
    after, info = jax.jit(algorithm.step)(state, key)
    assert info.skipped
    assert_same(after.parameters, state.parameters)


def test_clip_norm_bounds_the_update(target):
    states = affine_steps(target, 1, optimizer=optax.sgd(1.0), clip_norm=0.01)
    moved = distance(states[1].parameters, states[0].parameters)
    np.testing.assert_allclose(moved, 0.01, rtol=1e-3)


def test_gradient_below_clip_norm_is_left_alone(target, key):
    algorithm = NSFS(target, drift=Affine(), optimizer=optax.sgd(1.0), clip_norm=1e6, **SMALL)
    state = algorithm.init(key)
    after, info = jax.jit(algorithm.step)(state, key)
    moved = distance(after.parameters, state.parameters)
    np.testing.assert_allclose(moved, info.gradient_norm, rtol=1e-4)


def test_own_optimizer_is_used(target):
    still = affine_steps(target, 1, optimizer=optax.set_to_zero())
    assert_same(still[1].parameters, still[0].parameters)


def test_learning_rate_decays_to_zero_over_the_iterations(target):
    states = affine_steps(target, 3, num_iterations=2, learning_rate=0.1)
    first, second, third = (
        distance(after.parameters, before.parameters)
        for before, after in itertools.pairwise(states)
    )
    # Adam's first update is the rate times the sign of the gradient, for each of 3 parameters.
    np.testing.assert_allclose(first, 0.1 * np.sqrt(3), rtol=1e-3)
    assert 0 < second < first
    assert third == 0


def test_learning_rate_schedule_is_used_as_it_is(target):
    def schedule(count):
        return jnp.where(count < 1, 0.0, 0.2)

    states = affine_steps(target, 2, num_iterations=1, learning_rate=schedule)
    assert_same(states[1].parameters, states[0].parameters)
    assert distance(states[2].parameters, states[1].parameters) > 0.05


def test_step_without_a_batch_uses_all_data(data_target, key):
    algorithm = NSFS(data_target, drift=Affine(1), **SMALL)
    state = algorithm.init(key)
    step = jax.jit(algorithm.step)
    assert_close(step(state, key), step(state, key, DATA))


def test_step_scales_a_batch_to_all_data(data_target, key):
    batch = DATA[1:3]
    repeated = Target(
        log_prior=data_target._log_prior,
        log_likelihood=data_target._log_likelihood,
        data=jnp.tile(batch, 2),
        like=jnp.zeros(1),
    )
    algorithm, other = (NSFS(one, drift=Affine(1), **SMALL) for one in (data_target, repeated))
    state = algorithm.init(key)
    _, with_batch = jax.jit(algorithm.step)(state, key, batch)
    _, with_all = jax.jit(other.step)(state, key)
    assert_close(with_batch, with_all)


def test_random_batch_has_rows_of_the_data(data_target, key):
    algorithm = NSFS(data_target, batch_size=3, drift=Affine(1), **SMALL)
    batch = algorithm.target.random_batch(key, algorithm.batch_size)
    assert batch.shape == (3,)
    assert set(batch.tolist()) <= set(DATA.tolist())
    algorithm = NSFS(data_target, drift=Affine(1), **SMALL)
    everything = algorithm.target.random_batch(key, algorithm.batch_size)
    np.testing.assert_array_equal(everything, DATA)


def test_batch_size_of_all_the_data_brings_no_batch_noise(data_target, key):
    algorithm = NSFS(data_target, batch_size=len(DATA), drift=Affine(1), **SMALL)
    batch = algorithm.target.random_batch(key, algorithm.batch_size)
    np.testing.assert_array_equal(np.sort(batch), np.sort(DATA))


def test_log_variance_refuses_a_mini_batch_and_says_why(data_target, key):
    algorithm = NSFS(data_target, drift=Affine(1), objective="log_variance", **SMALL)
    state = algorithm.init(key)
    with pytest.raises(InputError, match=r"mini-batch.*\n.*square sees the mini-batch noise"):
        jax.jit(algorithm.step)(state, key, DATA[:2])
    _, info = jax.jit(algorithm.step)(state, key, DATA)
    assert np.isfinite(info.loss)


def test_log_variance_accepts_a_mini_batch_when_told(data_target, key):
    objective = LogVariance(allow_minibatches=True)
    algorithm = NSFS(data_target, drift=Affine(1), objective=objective, **SMALL)
    _, info = jax.jit(algorithm.step)(algorithm.init(key), key, DATA[:2])
    assert not info.skipped
    assert info.loss > 0


@pytest.mark.usefixtures("x64")
def test_everything_is_double_for_a_double_target(key):
    target = Target(lambda x: log_normal(x, 0.5, 0.7), like=jnp.zeros(2))
    algorithm = NSFS(target, **NAMED)
    state, info = jax.jit(algorithm.step)(algorithm.init(key), key)
    draws = jax.jit(algorithm.sample, static_argnums=2)(state, key, 4)
    for leaf in jax.tree.leaves((state.parameters, state.average, info[:3], draws)):
        assert leaf.dtype == jnp.float64


@pytest.mark.usefixtures("x64")
def test_single_target_stays_single_where_double_is_enabled(key):
    target = Target(lambda x: log_normal(x, 0.5, 0.7), like=jnp.zeros(2, jnp.float32))
    algorithm = NSFS(target, **NAMED)
    state = algorithm.init(key)
    after, _ = jax.jit(algorithm.step)(state, key)
    for before, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert leaf.dtype == before.dtype
    assert jax.jit(algorithm.sample, static_argnums=2)(after, key, 4).position.dtype == jnp.float32


PARTS = [
    *(("drift", name) for name in sorted(DRIFTS)),
    *(("objective", name) for name in sorted([*OBJECTIVES, "bridge_matching"])),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("step_rule", sorted(STEPS))
@pytest.mark.parametrize(("option", "name"), PARTS)
def test_every_part_stays_single_where_double_is_enabled(option, name, step_rule, key):
    single = jnp.dtype("float32")
    target = Target(lambda x: log_normal(x, 0.5, 0.7), like=jnp.zeros(2, single))
    if name == "bridge_matching":
        name = BridgeMatching(jnp.zeros((8, 2), single), refresh_paths=4, moves=2)
    algorithm = NSFS(target, **{**SMALL, "step_rule": step_rule, option: name})
    state = jax.eval_shape(algorithm.init, key)
    after, info = jax.eval_shape(algorithm.step, state, key)
    for before, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert leaf.dtype == before.dtype
    draws = jax.eval_shape(lambda state, key: algorithm.sample(state, key, 4), state, key)
    for leaf in jax.tree.leaves((after.parameters, info.loss, info.elbo, draws)):
        assert leaf.dtype == single


def test_changed_options_are_changed_and_all_others_are_kept(data_target):
    options = {"objective": det, "batch_size": 2, "clip_norm": 3.0, "optimizer": optax.sgd(0.1)}
    algorithm = NSFS(data_target, drift=Affine(1), **SMALL, **options)
    before = algorithm.options
    other = algorithm.changed(gamma=2.0, num_paths=9)
    assert other.target is data_target
    assert (other.process.gamma, other.num_paths) == (2.0, 9)
    changed = {"gamma", "num_paths"}
    for name in before.keys() - changed:
        assert other.options[name] is before[name] or other.options[name] == before[name], name
    assert (algorithm.process.gamma, algorithm.num_paths) == (1.0, 4)


def test_an_algorithm_can_be_moved_to_another_target(target, data_target):
    algorithm = NSFS(target, **NAMED)
    moved = algorithm.changed(target=data_target)
    assert moved.target is data_target
    assert moved.describe() == algorithm.describe()
    assert jax.tree.leaves(moved.init(jax.random.key(0)).parameters)[0].shape == (4, 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_step": 3}, r"'num_step' is not an option.*\n.*\n.*'num_steps'\?"),
        ({"gamma": 0}, "gamma"),
    ],
)
def test_bad_changes_are_input_errors(target, changes, says):
    with pytest.raises(InputError, match=says):
        NSFS(target, **NAMED).changed(**changes)


def test_describe_is_plain_and_marks_what_is_the_users_own(target):
    named = NSFS(target, **NAMED).describe()
    assert named["drift"] == "mlp"
    assert named["drift_options"] == {"width": 4, "depth": 1}
    assert "target" not in named
    own = NSFS(target, drift=Affine(), grid=lambda k: np.linspace(0, 1, k + 1)).describe()
    assert own["drift"] == own["grid"] == "custom"


@pytest.mark.parametrize(
    "option",
    [
        {"learning_rate": np.float32(0.01)},
        {"average_decay": np.float32(0.9)},
        {"batch_size": np.int64(2)},
    ],
)
def test_describe_keeps_numpy_numbers(data_target, option):
    (name, value), *_ = option.items()
    described = NSFS(data_target, drift=Affine(1), **option).describe()
    assert described[name] == pytest.approx(float(value))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gamma": 0.0}, "gamma must be a finite number above 0, not 0.0"),
        ({"gamma": -1}, "gamma must be"),
        ({"gamma": np.nan}, "gamma must be"),
        ({"gamma": np.inf}, "gamma must be"),
        ({"gamma": "1"}, "gamma must be"),
        ({"clip_norm": 0}, "clip_norm must be"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1, not 0"),
        ({"num_steps": 2.5}, "num_steps must be"),
        ({"num_steps": None}, "num_steps must be"),
        ({"num_steps": True}, "num_steps must be"),
        ({"num_paths": 0}, "num_paths must be"),
        ({"num_iterations": -3}, "num_iterations must be"),
        ({"learning_rate": 0}, "learning_rate must be"),
        ({"average_decay": 1.0}, r"average_decay must be a number in \[0, 1\), not 1.0"),
        ({"average_decay": -0.1}, "average_decay must be"),
        ({"average_decay": np.nan}, "average_decay must be"),
        ({"objective": "slt"}, r"'slt' is unknown.*\n.*'stl'\?"),
        ({"objective": None}, "None is unknown"),
        ({"drift": "time_mpl"}, r"'time_mpl' is not a drift.*\n.*'time_mlp'\?"),
        ({"drift": 3}, "drift is int, not a function or a name"),
        ({"grid": "geometrc"}, r"'geometrc' is unknown.*\n.*'geometric'\?"),
        ({"grid": lambda k: np.linspace(0, 2, k + 1)}, "does not rise strictly from 0 to 1"),
        ({"num_step": 3}, r"'num_step' is not an option.*\n.*\n.*'num_steps'\?"),
        ({"drift_options": {"widht": 8}}, r"'widht' is not an option.*\n.*\n.*'width'\?"),
        ({"drift_options": {"dim": 3}}, "'dim' is not an option"),
        ({"drift_options": {"width": 0}}, "width must be a whole number"),
        ({"drift_options": {"width": 2.5}}, "width must be a whole number"),
        ({"drift_options": 8}, "drift_options"),
        ({"drift": Affine(), "drift_options": {"width": 8}}, "drift_options only go with a drift"),
        ({"drift": lambda t, x: x[:1]}, r"the drift returns \(1,\) for a state of shape \(2,\)"),
        ({"drift": lambda t, x: jnp.sum(x)}, r"the drift returns \(\)"),
        ({"drift": lambda t, x: x[None]}, r"the drift returns \(1, 2\)"),
        ({"drift": lambda t, x: (x, x)}, "the drift returns tuple"),
        ({"drift": lambda t, x: None}, "the drift returns NoneType"),
        ({"drift": lambda t, x: x.astype(jnp.float16)}, "the drift returns dtype float16"),
        ({"drift": lambda t, x: x.astype(int)}, "the drift returns dtype int32"),
        ({"batch_size": 2}, "batch_size was given, but the target has no data"),
        ({"optimizer": "adam"}, "optimizer"),
        ({"optimizer": optax.adam}, "optimizer"),
    ],
)
def test_bad_option_is_an_input_error_that_says_what(target, options, says):
    with pytest.raises(InputError, match=says):
        NSFS(target, **options)


@pytest.mark.parametrize(
    ("batch_size", "says"),
    [
        (5, "batch_size=5 exceeds the 4 data points"),
        (0, "batch_size must be a whole number"),
        (1.5, "batch_size must be a whole number"),
    ],
)
def test_bad_batch_size_is_an_input_error(data_target, batch_size, says):
    with pytest.raises(InputError, match=says):
        NSFS(data_target, batch_size=batch_size)


@pytest.mark.parametrize("drift", [lambda x: x, Affine])
def test_drift_that_cannot_be_called_with_time_and_state_is_an_input_error(target, drift):
    with pytest.raises(InputError, match="drift"):
        NSFS(target, drift=drift)


@pytest.mark.parametrize("wrong", [None, 3, lambda x: -jnp.sum(x**2)])
def test_target_that_is_no_target_is_an_input_error(wrong):
    with pytest.raises(InputError, match=r"not a follmer\.Target"):
        NSFS(wrong)


def test_missing_target_is_an_input_error():
    with pytest.raises(InputError, match="target"):
        NSFS()


def test_key_that_is_no_key_is_an_input_error(algorithm, states):
    calls = [
        lambda key: algorithm.init(key),
        lambda key: algorithm.step(states[0], key),
        lambda key: algorithm.sample(states[0], key, 4),
    ]
    for call in calls:
        with pytest.raises(InputError, match="key is not a JAX random key but int: 0"):
            call(0)
        with pytest.raises(InputError, match=r"key has shape \(3,\); one key is wanted"):
            call(jax.random.split(jax.random.key(0), 3))


def test_old_style_key_gives_the_same_as_a_typed_one(algorithm):
    assert_same(algorithm.init(jax.random.PRNGKey(3)), algorithm.init(jax.random.key(3)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((0,), "num_samples must be"), ((2.5,), "num_samples must be"), ((4, 0), "num_steps must be")],
)
def test_bad_sample_arguments_are_input_errors(algorithm, states, key, arguments, says):
    with pytest.raises(InputError, match=says):
        algorithm.sample(states[0], key, *arguments)


def test_h_transform_trains_the_gaussian_guess(target, key):
    """A drift without parameters leaves mean-field variational inference, which fits exactly."""
    options = {**SMALL, "step_rule": "h_transform", "num_paths": 64, "learning_rate": 0.1}
    algorithm = NSFS(target, drift=lambda t, x: jnp.zeros_like(x), **options)
    keys = jax.random.split(key, algorithm.num_iterations)
    state, _ = jax.jit(lambda s, k: jax.lax.scan(algorithm.step, s, k))(algorithm.init(key), keys)
    draws = algorithm.sample(state, key, 500)
    # At the exact Gaussian every weight is 1.
    assert (
        np.std(draws.log_weights)
        < 0.2
        < np.std(algorithm.sample(algorithm.init(key), key, 500).log_weights)
    )


def test_unknown_step_rule_names_the_nearest(target):
    with pytest.raises(InputError, match=r"step_rule='htransform'.*\n.*'h_transform'\?"):
        NSFS(target, step_rule="htransform")


def test_off_policy_paths_go_with_every_step_rule(target, key):
    objective = LogVariance(sampling_drift=lambda t, x: 1.0 - x)
    for step_rule in STEPS:
        algorithm = NSFS(target, **{**SMALL, "step_rule": step_rule}, objective=objective)
        before = jax.jit(algorithm.init)(key)
        after, info = jax.jit(algorithm.step)(before, key)
        assert not info.skipped
        assert distance(after.parameters, before.parameters) > 1e-3


def test_gradients_of_the_target_are_counted(target):
    plain = NSFS(target, num_paths=8, num_steps=4)
    assert plain.gradient_evaluations(10) == 80
    guided = NSFS(target, num_paths=8, num_steps=4, drift="score_guided")
    assert guided.gradient_evaluations(10) == 80 * 5
    matching = NSFS(target, num_paths=8, objective="adjoint_matching")
    assert matching.gradient_evaluations(10) == 8 * 2
