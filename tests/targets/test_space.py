from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints

from follmer.errors import InputError
from follmer.targets.space import Space

interval = constraints.interval(-1.0, 2.0)


class Pair(NamedTuple):
    first: float
    second: float


SPACES = {
    "bare array": lambda: Space(jnp.zeros((2, 3))),
    "bare scalar": lambda: Space(0.0),
    "real": lambda: Space(jnp.zeros(3), constraints.real),
    "positive": lambda: Space(jnp.zeros(3), constraints.positive),
    "simplex": lambda: Space(jnp.zeros(4), constraints.simplex),
    "simplices": lambda: Space(jnp.zeros((2, 3)), constraints.simplex),
    "interval": lambda: Space(jnp.zeros(3), interval),
    "lower_cholesky": lambda: Space(jnp.zeros((3, 3)), constraints.lower_cholesky),
    "one for all": lambda: Space({"a": 0.0, "b": jnp.zeros(2)}, constraints.positive),
    "tuple": lambda: Space((0.0, jnp.zeros(2)), (None, constraints.positive)),
    "named tuple": lambda: Space(Pair(0.0, 0.0), Pair(constraints.positive, None)),
    "nested": lambda: Space(
        {"a": {"b": jnp.zeros(2), "c": (0.0, jnp.zeros((2, 2)))}, "w": jnp.zeros(3)},
        {"a": {"c": (constraints.positive, None)}, "w": constraints.simplex},
    ),
}


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]()


def test_unconstrain_inverts_constrain(x64, space, key):
    x = jax.random.normal(key, (space.dim,))
    there_and_back = jax.jit(lambda x: space.unconstrain(space.constrain(x)))
    np.testing.assert_allclose(there_and_back(x), x, atol=1e-8)


def test_constrain_gives_the_shapes_of_like(space):
    theta = jax.eval_shape(space.constrain, jax.ShapeDtypeStruct((space.dim,), space.dtype))
    assert [leaf.shape for leaf in jax.tree.leaves(theta)] == [leaf.shape for leaf in space.leaves]


def test_constrained_values_satisfy_their_constraints(key):
    like = {"free": 0.0, "scale": jnp.zeros(2), "unit": jnp.zeros(3), "weights": jnp.zeros((2, 3))}
    wanted = {"scale": constraints.positive, "unit": interval, "weights": constraints.simplex}
    space = Space(like, wanted)
    theta = jax.jit(jax.vmap(space.constrain))(2 * jax.random.normal(key, (200, space.dim)))
    assert jnp.any(theta["free"] < 0)
    for name, constraint in wanted.items():
        assert jnp.all(constraint(theta[name]))


def test_leaves_left_out_of_the_constraints_are_unconstrained(key):
    space = Space({"a": 0.0, "b": {"c": 0.0, "d": 0.0}}, {"b": {"c": constraints.positive}})
    x = jnp.array([-1.0, -2.0, -3.0])
    theta = space.constrain(x)
    assert theta["a"] == -1.0
    assert theta["b"]["d"] == -3.0
    np.testing.assert_allclose(theta["b"]["c"], np.exp(-2.0), rtol=1e-6)


def test_one_constraint_goes_to_every_leaf():
    space = Space({"a": 0.0, "b": (jnp.zeros(2), 0.0)}, constraints.positive)
    assert all(jnp.all(leaf > 0) for leaf in jax.tree.leaves(space.constrain(-jnp.ones(4))))


def test_a_simplex_has_one_coordinate_less_than_elements():
    assert Space(jnp.zeros((2, 3)), constraints.simplex).dim == 4


SQUARE = {
    "real": (jnp.zeros(3), constraints.real, jnp.ravel),
    "positive": (jnp.zeros(3), constraints.positive, jnp.ravel),
    "interval": (jnp.zeros(3), interval, jnp.ravel),
    "ordered_vector": (jnp.zeros(3), constraints.ordered_vector, jnp.ravel),
    "simplex": (jnp.zeros(4), constraints.simplex, lambda value: value[:-1]),
    "lower_cholesky": (
        jnp.zeros((3, 3)),
        constraints.lower_cholesky,
        lambda value: value[jnp.tril_indices(3)],
    ),
    "nested": (
        {"a": jnp.zeros(2), "b": (0.0, jnp.zeros(2))},
        {"a": constraints.positive, "b": (None, interval)},
        lambda value: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(value)]),
    ),
}


@pytest.mark.parametrize("name", SQUARE)
def test_log_det_is_that_of_the_jacobian(x64, key, name):
    like, constraint, coordinates = SQUARE[name]
    space = Space(jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf)), like), constraint)
    x = jax.random.normal(key, (space.dim,))
    jacobian = jax.jit(jax.jacobian(lambda x: coordinates(space.constrain(x))))(x)
    expected = np.linalg.slogdet(jacobian)[1]
    log_det = jax.jit(space.constrain_with_log_det)(x)[1]
    np.testing.assert_allclose(log_det, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("like", "constraint", "density"),
    [
        (0.0, constraints.positive, lambda y: 2.0 * jnp.exp(-2.0 * y)),
        (0.0, constraints.unit_interval, lambda y: 6.0 * y * (1.0 - y)),
        (0.0, constraints.greater_than(1.0), lambda y: y**-2.0),
        (jnp.zeros(2), constraints.simplex, lambda y: 12.0 * y[0] * y[1] ** 2),
    ],
    ids=["exponential", "beta", "pareto", "dirichlet"],
)
def test_a_density_still_integrates_to_one(x64, like, constraint, density):
    space = Space(jnp.zeros(jnp.shape(like)), constraint)
    grid = jnp.linspace(-30.0, 30.0, 20001)

    def transformed(x):
        theta, log_det = space.constrain_with_log_det(x)
        return density(theta) * jnp.exp(log_det)

    values = jax.jit(jax.vmap(transformed))(grid[:, None])
    np.testing.assert_allclose(np.trapezoid(values, grid), 1.0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "constraint", [None, constraints.positive, interval, constraints.simplex], ids=str
)
def test_values_keep_the_dtype_of_like(x64, dtype, constraint):
    space = Space(jnp.zeros(3, dtype), constraint)
    theta, log_det = space.constrain_with_log_det(jnp.zeros(space.dim, dtype))
    found = [str(value.dtype) for value in (theta, log_det, space.unconstrain(theta))]
    assert found == [dtype] * 3


def test_python_floats_take_the_default_precision(x64):
    assert Space({"a": 0.0}).dtype == jnp.float64


def test_leaves_are_named_by_their_path():
    space = Space({"b": (0.0, {"c": jnp.zeros(2)}), "a": Pair(0.0, 0.0)})
    assert [leaf.name for leaf in space.leaves] == ["a.first", "a.second", "b.0", "b.1.c"]


def test_a_bare_array_is_named_theta():
    assert Space(jnp.zeros(2)).leaves[0].name == "theta"


def test_leaf_of_finds_the_leaf_of_each_coordinate():
    space = Space({"a": 0.0, "b": jnp.zeros(3), "c": 0.0}, {"b": constraints.simplex})
    assert [space.leaf_of(i).name for i in range(space.dim)] == ["a", "b", "b", "c"]


def test_describe_tells_spaces_apart():
    plain = Space({"a": 0.0, "b": 0.0})
    assert plain.describe() == Space({"a": 1.0, "b": 2.0}).describe()
    others = [
        Space({"a": 0.0, "c": 0.0}),
        Space({"a": 0.0, "b": jnp.zeros(1)}),
        Space({"a": 0.0, "b": 0.0}, {"b": constraints.positive}),
    ]
    for other in others:
        assert plain.describe() != other.describe()


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        ({"a": jnp.zeros(2)}, "tree .* differs"),
        ({"a": jnp.zeros(2), "b": jnp.zeros(2)}, r"leaf b has shape \(2,\); `like` says \(\)"),
    ],
    ids=["tree", "shape"],
)
def test_unconstrain_refuses_what_is_not_like_like(theta, message):
    with pytest.raises(InputError, match=message):
        Space({"a": jnp.zeros(2), "b": 0.0}).unconstrain(theta)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({}, "no leaves"),
        (jnp.zeros(0), "without elements"),
        ({"a": 0.0, "b": "word"}, "leaf b of `like` is str"),
        ({"a": 0.0, "b": jnp.zeros(2, int)}, "leaf b of `like` has dtype int32.*floating point"),
        ({"a": 1j}, "leaf a of `like` has dtype complex64"),
    ],
    ids=["empty", "no elements", "string", "integer", "complex"],
)
def test_bad_like(like, message):
    with pytest.raises(InputError, match=message):
        Space(like)


def test_mixed_dtypes_are_listed(x64):
    like = {"a": jnp.zeros(2, "float32"), "b": jnp.zeros(2, "float64")}
    with pytest.raises(InputError, match=r"mix floating dtypes \(a: float32, b: float64\)"):
        Space(like)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sigm": constraints.positive}, r"(?s)'sigm'.*not in `like`.*Try: 'sigma'\?"),
        ({"mu": {"x": constraints.positive}}, "does not fit the tree"),
        ([constraints.positive], "does not fit the tree"),
        ({"sigma": "positive"}, "'positive' is not a NumPyro constraint"),
        ({"sigma": constraints.interval}, "not a NumPyro constraint"),
        ({"sigma": constraints.nonnegative_integer}, "(?s)no bijection.*discrete"),
        ({"sigma": constraints.simplex}, r"leaf sigma of shape \(\) cannot carry"),
        ({"mu": constraints.lower_cholesky}, r"leaf mu of shape \(2,\) cannot carry"),
        ({"mu": constraints.interval(jnp.zeros(3), 1.0)}, "leaf mu .* cannot carry"),
        ({"sigma": constraints.interval(jnp.zeros(3), 1.0)}, "leaf sigma .* cannot carry"),
    ],
    ids=[
        "unknown name",
        "deeper than like",
        "other container",
        "string",
        "not called",
        "discrete",
        "vector constraint on scalar",
        "matrix constraint on vector",
        "bounds of another shape",
        "bounds of a shape that broadcasts",
    ],
)
def test_bad_constraints(given, message):
    with pytest.raises(InputError, match=message):
        Space({"mu": jnp.zeros(2), "sigma": 0.0}, given)


def test_an_unknown_name_of_another_type_is_still_an_input_error():
    with pytest.raises(InputError, match="3, which is not in `like`"):
        Space({1: 0.0, 2: 0.0}, {3: constraints.positive})
