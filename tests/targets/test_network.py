import equinox as eqx
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy import stats

import follmer
from follmer import InputError, from_network, likelihoods, priors

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
Y = X @ [1.0, -0.5, 0.2] + 0.1


def mlp(key, out=1):
    return eqx.nn.MLP(3, out, 4, 1, key=key)


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(self.norm(jax.nn.relu(self.first(x)))))


def linear(params, x):
    return x @ params["w"] + params["b"]


LINEAR = {"w": jnp.array([0.3, 0.1, -0.2]), "b": jnp.array(0.5)}


def draws_of(target, count=3):
    return jax.vmap(target.constrain)(jax.random.normal(jax.random.key(1), (count, target.dim)))


def log_density(target, theta):
    return target.log_density(target.unconstrain(theta))


def test_the_density_of_a_linear_network_is_the_hand_computed_one(x64):
    params = jax.tree.map(lambda leaf: leaf.astype(float), LINEAR)
    target = from_network(
        linear, params=params, data=(X, Y), likelihood=likelihoods.Normal(0.3), prior="laplace"
    )
    outputs = X @ LINEAR["w"] + 0.5
    expected = stats.norm.logpdf(Y, outputs, 0.3).sum()
    expected += stats.laplace.logpdf([*LINEAR["w"], 0.5]).sum()
    np.testing.assert_allclose(log_density(target, params), expected, rtol=1e-6)


def test_inferred_noise_is_a_positive_parameter_with_a_half_normal_prior(x64):
    params = jax.tree.map(lambda leaf: leaf.astype(float), LINEAR)
    target = from_network(linear, params=params, data=(X, Y), likelihood="normal")
    theta = {"net": params, "noise_sd": jnp.array(0.4)}
    values = np.array([*LINEAR["w"], 0.5])
    expected = stats.norm.logpdf(Y, X @ LINEAR["w"] + 0.5, 0.4).sum()
    expected += stats.norm.logpdf(values).sum() + stats.halfnorm.logpdf(0.4)
    jacobian = np.log(0.4)
    np.testing.assert_allclose(log_density(target, theta), expected + jacobian, rtol=1e-6)
    assert jnp.all(draws_of(target)["noise_sd"] > 0)


def test_an_equinox_module_acts_on_rows_and_its_draws_combine_to_networks(key):
    net = mlp(key)
    target = from_network(net, data=(X, Y), likelihood=likelihoods.Normal(0.1))
    params = eqx.filter(net, eqx.is_inexact_array)
    expected = stats.norm.logpdf(Y, np.asarray(jax.vmap(net)(jnp.asarray(X)))[:, 0], 0.1).sum()
    found = log_density(target, params) - priors.Normal()(params)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    draw = jax.tree.map(lambda leaf: leaf[0], draws_of(target))
    assert jax.tree.structure(draw) == jax.tree.structure(params)
    assert eqx.combine(draw, net)(jnp.ones(3)).shape == (1,)


def test_dropout_of_an_equinox_module_is_switched_off(key):
    net = eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=key), eqx.nn.Dropout(0.5)])
    target = from_network(net, data=(X, np.zeros((12, 4))), likelihood=likelihoods.Normal(1.0))
    assert target.dim == 16


def test_an_nnx_module_acts_on_batches_and_is_updated_by_its_draws():
    net = NNXNet(nnx.Rngs(0))
    target = from_network(net, data=(X, Y), likelihood=likelihoods.Normal(0.1))
    assert target.dim == 16 + 8 + 5
    params = nnx.state(net, nnx.Param)
    found = log_density(target, params) - priors.Normal()(params)
    net.eval()
    outputs = np.asarray(net(jnp.asarray(X, jnp.float32)))[:, 0]
    np.testing.assert_allclose(found, stats.norm.logpdf(Y, outputs, 0.1).sum(), rtol=1e-4)
    draw = jax.tree.map(lambda leaf: leaf[0], draws_of(target))
    nnx.update(net, draw)
    np.testing.assert_array_equal(net.first.kernel[...], jax.tree.leaves(draw["first"])[1])
    assert net(jnp.ones((2, 3))).shape == (2, 1)


def test_disjoint_mini_batches_of_a_network_average_to_all_data():
    target = from_network(NNXNet(nnx.Rngs(0)), data=(X, Y), likelihood="normal")
    x = jnp.linspace(-1.0, 1.0, target.dim)
    gradient = jax.jit(jax.grad(target.log_density))
    halves = [
        gradient(x, jax.tree.map(lambda leaf, s=s: leaf[s : s + 6], target.data)) for s in (0, 6)
    ]
    np.testing.assert_allclose(sum(halves) / 2, gradient(x), rtol=1e-3, atol=1e-3)


def test_a_linen_module_goes_by_its_apply(key):
    net = flax.linen.Dense(1)
    target = from_network(
        net.apply, params=net.init(key, X), data=(X, Y), likelihood=likelihoods.Normal(0.1)
    )
    assert target.dim == 4
    with pytest.raises(InputError, match=r"net\.apply"):
        from_network(net, data=(X, Y), likelihood="normal")


@pytest.mark.parametrize(
    ("likelihood", "y", "out"),
    [
        ("bernoulli", Y > 0, 1),
        ("categorical", np.digitize(Y, [-0.5, 0.5]), 3),
        ("poisson", np.abs(np.round(Y)), 1),
        (likelihoods.Normal(0.1), np.stack([Y, -Y], 1), 2),
    ],
    ids=["bernoulli", "categorical", "poisson", "two outputs"],
)
def test_every_likelihood_has_one_finite_term_per_row(likelihood, y, out, key):
    target = from_network(mlp(key, out), data=(X, y), likelihood=likelihood)
    report = target.check(key=key)
    assert np.isfinite(report.gradient_norm_max)
    assert target.num_data == 12


def test_scalar_outputs_need_no_column(key):
    wide = from_network(mlp(key), data=(X, Y), likelihood="normal")
    scalar = from_network(mlp(key, "scalar"), data=(X, Y[:, None]), likelihood="normal")
    x = jnp.linspace(-1.0, 1.0, wide.dim)
    np.testing.assert_allclose(scalar.log_density(x), wide.log_density(x), rtol=1e-6)


def test_whole_number_inputs_are_kept_for_embeddings(key):
    net = eqx.nn.Embedding(5, 2, key=key)
    codes = np.array([0, 4, 2])
    target = from_network(net, data=(codes, np.zeros((3, 2))), likelihood=likelihoods.Normal(1.0))
    assert target.data["x"].dtype == jnp.int32
    assert np.isfinite(target.log_density(jnp.ones(10)))


def spoilt(array, row, value):
    array = np.array(array, float)
    array[row] = value
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": (spoilt(X, (4, 1), np.nan), Y)}, "x holds nan in row 4, column 1"),
        ({"data": (X, spoilt(Y, 7, np.inf))}, "y holds inf in row 7"),
        ({"data": (X[:, :2], Y)}, r"cannot be applied to x of shape \(12, 2\)"),
        ({"data": (X, Y[:-1])}, "x: 12, y: 11"),
        ({"data": (X[:0], Y[:0])}, "empty"),
        ({"data": X}, "not a pair"),
        ({"data": (X, ["a"] * 12)}, "y is list"),
        ({"data": (X, np.ones(12)), "likelihood": "bernoulli"}, "one class only"),
        ({"likelihood": "bernoulli"}, "in row 0, which is not a label"),
        ({"likelihood": "categorical"}, "one logit per class"),
        ({"likelihood": "gaussian"}, "likelihood='gaussian' is unknown"),
        ({"prior": 1.0}, "prior=1.0 is unknown"),
        ({"net": linear}, "without params"),
        ({"net": 3.0}, "not a network"),
        ({"net": eqx.nn.Identity()}, "no parameters"),
        ({"prior": priors.Normal([1.0, 2.0])}, "do not fit"),
    ],
)
def test_what_cannot_be_used_is_named(changes, message, key):
    arguments = {"net": mlp(key), "data": (X, Y), "likelihood": "normal"} | changes
    with pytest.raises(InputError, match=message):
        from_network(arguments.pop("net"), **arguments)


def test_constant_columns_are_left_as_they_are(key):
    constant = np.hstack([X[:, :2], np.ones((12, 1))])
    target = from_network(mlp(key), data=(constant, Y), likelihood="normal")
    np.testing.assert_allclose(target.data["x"], constant.astype(np.float32))


def test_predictive_must_be_one(key):
    with pytest.raises(InputError, match=r"follmer\.Predictive"):
        follmer.Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(2), predictive=linear)


def test_other_unknowns_are_positive_parameters_too(x64):
    params, x, y = {"w": jnp.zeros((1, 1))}, np.ones((4, 1)), np.array([0.0, 2.0, 1.0, 5.0])
    target = from_network(
        lambda p, x: x @ p["w"], params=params, data=(x, y), likelihood="negative_binomial"
    )
    theta = {"net": {"w": jnp.array([[0.3]])}, "overdispersion": jnp.array(0.7)}
    size = 0.7**-2
    expected = stats.nbinom.logpmf(y, size, size / (size + np.exp(0.3))).sum()
    expected += stats.norm.logpdf(0.3) + stats.halfnorm.logpdf(0.7)
    # The change of variables from ln overdispersion.
    found = target.log_density(target.unconstrain(theta)) - np.log(0.7)
    assert float(found) == pytest.approx(expected, rel=1e-8)


def test_hidden_layers_are_told_from_linear_models():
    x, y = np.ones((3, 2)), np.zeros(3)
    linear = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    deep = eqx.nn.MLP(2, 1, width_size=3, depth=1, key=jax.random.key(0))
    found = [from_network(net, data=(x, y), likelihood="normal") for net in (linear, deep)]
    assert [one.predictive.has_hidden_layers for one in found] == [False, True]


def test_rows_have_their_own_log_likelihoods(x64):
    target = from_network(
        lambda p, x: x[:, 0] * p["w"],
        params={"w": jnp.zeros(())},
        data=(np.array([[1.0], [2.0]]), np.array([0.5, 0.0])),
        likelihood=likelihoods.Normal(0.5),
    )
    found = target.row_log_likelihoods(jnp.array([0.3]))
    np.testing.assert_allclose(found, stats.norm.logpdf([0.5, 0.0], [0.3, 0.6], 0.5))
