"""The same model on other data: the same density as a new target, and nothing compiled again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from compilations import compiled
from follmer import InputError, StructuredTarget, Target, from_network, likelihoods, priors
from follmer.targets import Density
from follmer.targets.affine import from_covariance

NUM_DATA = 12
AFFINE = from_covariance(np.array([0.3, -0.2]), np.array([[0.5, 0.1], [0.1, 0.3]]), "float32")


def rows(seed, count=NUM_DATA):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(count, 2)), "n": rng.poisson(2.0, count)}


def regression(data):
    return Target(
        log_prior=lambda theta: norm.logpdf(theta["mu"]) - theta["sigma"],
        log_likelihood=lambda theta, batch: norm.logpdf(
            jnp.sum(batch["x"], 1), batch["n"] * theta["mu"], theta["sigma"]
        ),
        data=data,
        like={"mu": 0.0, "sigma": 1.0},
        constraints={"sigma": constraints.positive},
        outputs=lambda theta: {"ratio": theta["mu"] / theta["sigma"]},
    )


def structured(data):
    return StructuredTarget(
        log_prior_global=lambda phi: jnp.sum(norm.logpdf(phi)),
        log_prior_local=lambda theta, phi: norm.logpdf(theta, phi[0], jnp.exp(phi[1])),
        log_likelihood=lambda theta, phi, row: jnp.sum(norm.logpdf(row["x"], theta, row["n"] + 1)),
        data=data,
        like_global=jnp.zeros(2),
        like_local=jnp.zeros(()),
    )


@eqx.filter_jit
def value_and_gradient(target, x):
    return jax.value_and_grad(target.log_density)(x)


def assert_same_density(one, two):
    assert (one.dim, one.num_data) == (two.dim, two.num_data)
    x = jnp.linspace(-0.8, 0.9, one.dim)
    for found, expected in zip(value_and_gradient(one, x), value_and_gradient(two, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


CASES = [
    *((regression, affine, count) for affine in (None, AFFINE) for count in (NUM_DATA, 7, 31)),
    *((structured, None, count) for count in (NUM_DATA, 7, 31)),
    (structured, AFFINE, 7),  # frames take long to compile
]


@pytest.mark.parametrize(("build", "affine", "count"), CASES)
def test_the_density_is_that_of_a_new_target_on_those_data(build, affine, count):
    old, data = build(rows(0)).whitened(affine), rows(1, count)
    new, fresh = old.with_data(data), build(data).whitened(affine)
    assert_same_density(new, fresh)
    assert (new.affine is None) == (affine is None)
    assert new.gradient_cost == pytest.approx(fresh.gradient_cost, rel=1e-6)
    assert old.num_data == NUM_DATA
    assert_same_density(old, build(rows(0)).whitened(affine))


def test_batches_are_scaled_to_the_new_number_of_rows():
    data = rows(1, 7)
    new, fresh = regression(rows(0)).with_data(data), regression(data)
    x, batch = jnp.array([0.3, -0.4]), jax.tree.map(lambda leaf: leaf[2:4], fresh.data)
    np.testing.assert_allclose(new.log_density(x, batch), fresh.log_density(x, batch), rtol=1e-6)
    drawn = new.random_batch(jax.random.key(0), 3)
    assert drawn["x"].shape == (3, 2)
    assert np.isin(drawn["x"], np.asarray(data["x"], np.float32)).all()


def test_outputs_and_names_are_kept():
    old = regression(rows(0))
    new = old.with_data(rows(1))
    assert new.describe() == old.describe()
    np.testing.assert_allclose(new.constrain(jnp.array([1.0, 0.0]))["ratio"], 1.0)


def test_large_new_data_are_summed_in_chunks_of_rows():
    def wide(theta, batch):
        """Normal, by way of 1000 numbers per row."""
        return jnp.mean(norm.logpdf(jnp.broadcast_to(batch[:, None], (len(batch), 1000)), theta), 1)

    def build(data):
        return Target(log_prior=norm.logpdf, log_likelihood=wide, data=data, like=0.0)

    rng = np.random.default_rng(0)
    few, many = rng.normal(size=20), rng.normal(size=5000)
    old = build(few)
    assert old.rows_at_once == 20
    new = old.with_data(many)
    assert new.rows_at_once == build(many).rows_at_once < 2500
    assert new.with_data(few).rows_at_once == 20
    expected = norm.logpdf(0.3) + np.sum(norm.logpdf(many, 0.3))
    np.testing.assert_allclose(new.log_density(jnp.array([0.3])), expected, rtol=1e-4)


GOOD = rows(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**GOOD, "x": np.zeros((NUM_DATA, 3))}, r"x: float32\[3\].*are .*x: float32\[2\]"),
        ({**GOOD, "x": np.zeros(NUM_DATA)}, r"x: float32\[\];.*x: float32\[2\]"),
        ({**GOOD, "n": np.zeros(NUM_DATA)}, r"n: float32\[\].*n: int32\[\]"),
        ({**GOOD, "x": np.zeros((NUM_DATA, 2), int)}, r"x: int32\[2\].*x: float32\[2\]"),
        ({"x": GOOD["x"]}, r"are x: float32\[2\]; those of the target are n: int32"),
        ({**GOOD, "z": np.zeros(NUM_DATA)}, r"z: float32\[\]; those"),
        ({"x": GOOD["x"], "m": GOOD["n"]}, r"m: int32\[\]"),
        ((GOOD["n"], GOOD["x"]), r"0: int32\[\], 1: float32\[2\]; those"),
        (GOOD["x"], r"data: float32\[2\]; those"),
        ({**GOOD, "n": GOOD["n"][:5]}, r"unequal leading axes \(n: 5, x: 12\)"),
        (rows(0, 0), "`data` is empty"),
        (None, "`data` holds no arrays"),
        ({**GOOD, "n": 3.0}, "n in `data` is float, not an array"),
    ],
    ids=[
        "wider rows",
        "rows without an axis",
        "floats for whole numbers",
        "whole numbers for floats",
        "an array missing",
        "an array too many",
        "another name",
        "a tuple for a dict",
        "a bare array",
        "unequal lengths",
        "empty",
        "nothing",
        "a number",
    ],
)
@pytest.mark.parametrize(
    "target",
    [regression(rows(0)), regression(rows(0)).whitened(AFFINE), structured(rows(0))],
    ids=["plain", "whitened", "structured"],
)
def test_rows_that_look_otherwise_are_an_input_error(target, data, message):
    with pytest.raises(InputError, match=message):
        target.with_data(data)


@pytest.mark.parametrize("new", [list, lambda pair: dict(zip("01", pair, strict=True))])
def test_another_tree_of_the_same_names_is_an_input_error(new):
    pair = (np.zeros(4), np.ones(4))
    target = Target(
        log_prior=norm.logpdf,
        log_likelihood=lambda theta, batch: norm.logpdf(batch[0], theta + batch[1]),
        data=pair,
        like=0.0,
    )
    with pytest.raises(InputError, match=r"the new rows are PyTreeDef.*target are PyTreeDef"):
        target.with_data(new(pair))


@pytest.mark.parametrize("affine", [None, AFFINE], ids=["plain", "whitened"])
def test_a_target_without_data_has_none_to_change(affine):
    target = Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(2)).whitened(affine)
    with pytest.raises(InputError, match=r"(?s)target has no data.*built from a log density"):
        target.with_data(rows(0))
    with pytest.raises(InputError, match="target has no data"):
        regression(rows(0)).whitened(affine).prior.with_data(rows(0))


@pytest.mark.parametrize("affine", [None, AFFINE], ids=["plain", "whitened"])
@pytest.mark.parametrize("build", [regression, structured])
def test_other_data_of_the_same_shape_are_not_compiled_for_again(build, affine):
    evaluate = eqx.filter_jit(lambda target, x: target.log_density(x))
    old = build(rows(0)).whitened(affine)
    x = jnp.linspace(-0.8, 0.9, old.dim)
    assert compiled(evaluate, old, x) == 1
    assert compiled(evaluate, old, x) == 0
    new = old.with_data(rows(1))
    assert compiled(evaluate, new, x) == 0
    assert evaluate(new, x) != evaluate(old, x)
    if affine is None:
        # The count is not blind: other shapes take another program.
        more = old.with_data(rows(1, 31))
        assert compiled(evaluate, more, jnp.zeros(more.dim)) == 1


def test_values_on_the_host_are_not_compiled_for_again():
    old, x = regression(rows(0)), np.zeros((3, 2))
    Density(old)(x)
    assert compiled(lambda: Density(old.with_data(rows(1)))(x)) == 0
    assert compiled(lambda: Density(old.with_data(rows(2)))(x + 1.0)) == 0


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(self.norm(jax.nn.relu(self.first(x)))))


def linear(params, x):
    return x @ params["w"] + params["b"]


def equinox_target(seed, data, **options):
    return from_network(eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(seed)), data=data, **options)


def nnx_target(seed, data, **options):
    return from_network(NNXNet(nnx.Rngs(seed)), data=data, **options)


def function_target(seed, data, **options):
    params = {"w": jnp.full(2, float(seed)), "b": jnp.zeros(())}
    return from_network(linear, params=params, data=data, **options)


@pytest.mark.parametrize("build", [equinox_target, nnx_target, function_target])
@pytest.mark.parametrize(
    "options",
    [
        lambda: {"likelihood": "normal"},
        lambda: {"likelihood": "poisson", "prior": "laplace"},
        lambda: {"likelihood": likelihoods.Normal(0.3), "prior": priors.Normal(0.5)},
    ],
    ids=["inferred noise", "named", "own"],
)
def test_targets_of_equal_networks_share_what_is_compiled(build, options):
    evaluate = eqx.filter_jit(lambda target, x: target.log_density(x))
    (x0, n0), (x1, n1) = ((data["x"], data["n"]) for data in (rows(0), rows(1)))
    # Two networks of one form whose values, which nothing depends on, differ.
    one, two = build(0, (x0, n0), **options()), build(1, (x1, n1), **options())
    x = jnp.linspace(-0.8, 0.9, one.dim)
    assert compiled(evaluate, one, x) == 1
    assert compiled(evaluate, two, x) == 0
    np.testing.assert_allclose(evaluate(two, x), two.log_density(x), rtol=1e-5)
    assert compiled(evaluate, one.with_data(two.data), x) == 0
    np.testing.assert_array_equal(evaluate(one.with_data(two.data), x), evaluate(two, x))


def test_a_network_of_another_form_takes_another_program():
    evaluate = eqx.filter_jit(lambda target, x: target.log_density(x))
    data = (rows(0)["x"], rows(0)["n"])
    nets = [
        eqx.nn.MLP(2, 1, 4, 1, activation=activation, key=jax.random.key(0))
        for activation in (jax.nn.relu, jnp.tanh)
    ]
    relu, tanh = (from_network(net, data=data, likelihood="poisson") for net in nets)
    x = jnp.linspace(-0.8, 0.9, relu.dim)
    assert compiled(evaluate, relu, x) == compiled(evaluate, tanh, x) == 1
    assert evaluate(relu, x) != evaluate(tanh, x)
