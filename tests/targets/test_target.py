import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

from follmer import InputError, NonFiniteError, StructuredTarget, Target
from follmer.targets import random_batch, take
from follmer.targets.data import sum_over_rows

POINTS = np.linspace(-1.0, 2.0, 12)


def log_prior(theta):
    return norm.logpdf(theta["mu"]) - theta["sigma"]


def log_likelihood(theta, batch):
    return norm.logpdf(batch, theta["mu"], theta["sigma"])


def regression(**changes):
    arguments = {
        "log_prior": log_prior,
        "log_likelihood": log_likelihood,
        "data": POINTS,
        "like": {"mu": 0.0, "sigma": 1.0},
        "constraints": {"sigma": constraints.positive},
    }
    return Target(**arguments | changes)


def test_a_log_density_alone_is_a_target():
    target = Target(lambda theta: -jnp.sum(theta**2), like=jnp.zeros(3))
    assert (target.dim, target.num_data, target.data) == (3, None, None)
    np.testing.assert_allclose(target.log_density(jnp.arange(3.0)), -5.0)


def test_log_density_is_the_hand_computed_one(x64):
    target = regression()
    x = jnp.array([0.3, -0.4])
    sigma = np.exp(-0.4)
    terms = -0.5 * ((POINTS - 0.3) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    prior = -0.5 * 0.3**2 - 0.5 * np.log(2 * np.pi) - sigma
    jacobian = -0.4
    np.testing.assert_allclose(target.log_density(x), prior + terms.sum() + jacobian, rtol=1e-12)


def test_both_forms_of_one_density_agree(x64):
    whole = Target(
        lambda theta: log_prior(theta) + jnp.sum(log_likelihood(theta, POINTS)),
        like={"mu": 0.0, "sigma": 1.0},
        constraints={"sigma": constraints.positive},
    )
    x = jnp.array([0.3, -0.4])
    np.testing.assert_allclose(whole.log_density(x), regression().log_density(x), rtol=1e-12)


def test_interval_jacobian_is_added(x64):
    target = Target(lambda theta: jnp.log(theta), 0.5, constraints.unit_interval)
    share = 1 / (1 + np.exp(-0.7))
    expected = np.log(share) + np.log(share * (1 - share))
    np.testing.assert_allclose(target.log_density(jnp.array([0.7])), expected, rtol=1e-12)


def test_the_likelihood_of_a_batch_is_scaled_to_all_data(x64):
    target = regression()
    x = jnp.array([0.3, -0.4])
    theta = target.constrain(x)
    batch = POINTS[:3]
    prior = log_prior(theta) - 0.4
    expected = prior + 12 / 3 * jnp.sum(log_likelihood(theta, batch))
    np.testing.assert_allclose(target.log_density(x, batch), expected, rtol=1e-12)


def test_disjoint_batches_average_to_the_full_data(x64):
    target = regression()
    x = jnp.array([0.3, -0.4])
    evaluate = jax.jit(jax.value_and_grad(target.log_density))
    parts = [
        evaluate(x, batch) for batch in np.random.default_rng(0).permuted(POINTS).reshape(4, 3)
    ]
    value, gradient = evaluate(x, target.data)
    np.testing.assert_allclose(np.mean([part[0] for part in parts]), value, rtol=1e-12)
    np.testing.assert_allclose(np.mean([part[1] for part in parts], axis=0), gradient, rtol=1e-12)


@pytest.mark.parametrize(
    ("data", "first"),
    [
        (POINTS, lambda batch: batch),
        ((POINTS, np.ones((12, 2))), lambda batch: batch[0]),
        ({"y": POINTS, "x": np.ones((12, 2))}, lambda batch: batch["y"]),
    ],
    ids=["array", "tuple", "dict"],
)
def test_data_may_be_any_tree(data, first):
    target = regression(
        data=data, log_likelihood=lambda theta, batch: log_likelihood(theta, first(batch))
    )
    assert target.num_data == 12
    x = jnp.array([0.3, -0.4])
    np.testing.assert_allclose(target.log_density(x), regression().log_density(x), rtol=1e-6)


def test_take_keeps_rows_together():
    data = {"x": jnp.arange(5.0), "y": 10 * jnp.arange(5.0)[:, None]}
    rows = take(data, jnp.array([3, 1]))
    np.testing.assert_array_equal(rows["x"], [3.0, 1.0])
    np.testing.assert_array_equal(rows["y"], [[30.0], [10.0]])


def test_random_batches_draw_every_row_equally_often(key):
    counts = np.bincount(random_batch(key, jnp.arange(10), 10, 10_000), minlength=10)
    # Five standard errors of a count of 10 000 draws with chance 1/10.
    np.testing.assert_allclose(counts, 1000, atol=5 * np.sqrt(10_000 * 0.1 * 0.9))


def test_constrain_and_unconstrain_are_inverse():
    target = regression()
    theta = {"mu": 0.3, "sigma": 2.0}
    np.testing.assert_allclose(target.unconstrain(theta), [0.3, np.log(2.0)], rtol=1e-6)
    np.testing.assert_allclose(target.constrain(target.unconstrain(theta))["sigma"], 2.0, rtol=1e-6)


def test_the_density_keeps_the_dtype_of_like(x64):
    single = Target(
        lambda theta: jnp.sum(theta) * np.float64(2.0),
        jnp.zeros(2, "float32"),
        constraints.unit_interval,
    )
    assert single.log_density(jnp.zeros(2, "float32")).dtype == jnp.float32
    assert regression().log_density(jnp.zeros(2)).dtype == jnp.float64


def test_check_reports_what_it_saw(key):
    target = Target(lambda theta: -0.5 * jnp.sum(theta**2), jnp.zeros(2))
    report = target.check(key=key, num_draws=50, scale=2.0)
    assert report.num_draws == 50
    assert report.log_density_min < report.log_density_max < 0
    # The gradient is −x, so the largest norm belongs to the smallest density.
    expected = np.sqrt(-2 * report.log_density_min)
    np.testing.assert_allclose(report.gradient_norm_max, expected, rtol=1e-5)


def test_check_passes_with_data_and_constraints(key):
    assert regression().check(key=key).num_draws == 128


def test_check_names_leaf_and_draw_of_a_density_that_is_not_finite(key):
    target = Target(
        lambda theta: norm.logpdf(theta["mu"]) + jnp.log(theta["sigma"]) - theta["sigma"],
        like={"mu": 0.0, "sigma": 1.0},
    )
    with pytest.raises(NonFiniteError, match=r"log density is not finite at \d+ of 128") as caught:
        target.check(key=key)
    message = str(caught.value)
    assert "mu=[" in message
    assert "sigma=[-" in message
    assert "because of leaf sigma" in message
    assert "constraints=" in message


def test_check_names_the_leaf_whose_term_overflows(key):
    target = Target(
        lambda theta: norm.logpdf(theta["a"]) + jnp.where(theta["b"] > 0, jnp.inf, 0.0),
        like={"a": 0.0, "b": 0.0},
    )
    with pytest.raises(NonFiniteError, match=r"inf at a=.*because of leaf b"):
        target.check(key=key)


def test_check_names_leaf_and_draw_of_a_gradient_that_is_not_finite(key):
    target = Target(
        lambda theta: (
            norm.logpdf(theta["mu"]) + jnp.where(theta["tau"] > 0, jnp.sqrt(theta["tau"]), 0.0)
        ),
        like={"mu": 0.0, "tau": 1.0},
    )
    with pytest.raises(NonFiniteError, match=r"gradient .* not finite at \d+ of 128") as caught:
        target.check(key=key)
    message = str(caught.value)
    assert "in leaf tau at" in message
    assert "tau=[-" in message
    assert "jnp.where" in message


def test_check_tolerates_as_many_bad_draws_as_it_is_told(key):
    """A tenth of N(0, 1) is beyond ±1.64."""
    target = Target(lambda x: jnp.where(jnp.abs(x) < 1.64, norm.logpdf(x), jnp.nan), like=0.0)
    report = target.check(key=key, tolerated=0.2)
    assert np.isfinite(report).all()
    with pytest.raises(NonFiniteError, match=r"not finite at \d+ of 128"):
        target.check(key=key, tolerated=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": 0}, "key is not a JAX random key"),
        ({"num_draws": 0}, "num_draws must be a whole number"),
        ({"scale": np.nan}, "scale must be a finite number above 0"),
        ({"num_draw": 3}, r"(?s)'num_draw' is not an option.*'num_draws'\?"),
    ],
    ids=["key", "num_draws", "scale", "unknown"],
)
def test_check_refuses_bad_options(key, options, message):
    with pytest.raises(InputError, match=message):
        regression().check(**{"key": key} | options)


def test_check_needs_a_key():
    with pytest.raises(InputError, match=r"missing a required.*'key'"):
        regression().check()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda theta: theta, r"(?s)log_density returns shape \(2,\).*one number.*jnp.sum"),
        (lambda theta: jnp.sum(theta)[None], r"log_density returns shape \(1,\)"),
        (lambda theta: None, "log_density returns NoneType, not an array"),
        (lambda theta: (jnp.sum(theta), 0.0), "log_density returns tuple, not an array"),
        (lambda theta: jnp.sum(theta > 0), "log_density returns dtype int32"),
        (3.0, "log_density is float, not a function"),
    ],
    ids=["vector", "one element", "nothing", "tuple", "integer", "number"],
)
def test_bad_log_density(function, message):
    with pytest.raises(InputError, match=message):
        Target(function, jnp.zeros(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"log_likelihood": lambda theta, batch: jnp.sum(log_likelihood(theta, batch))},
            r"(?s)log_likelihood returns shape \(\) for 12 data points.*summed or averaged",
        ),
        (
            {"log_likelihood": lambda theta, batch: log_likelihood(theta, batch)[:, None]},
            r"(?s)log_likelihood returns shape \(12, 1\) for 12 data points.*event axis",
        ),
        (
            {"log_likelihood": lambda theta, batch: log_likelihood(theta, batch)[:5]},
            r"log_likelihood returns shape \(5,\) for 12 data points",
        ),
        ({"log_likelihood": lambda theta, batch: batch > 0}, "log_likelihood returns dtype bool"),
        ({"log_prior": lambda theta: jnp.zeros(2)}, r"log_prior returns shape \(2,\)"),
        ({"log_prior": "normal"}, "log_prior is str, not a function"),
        ({"log_likelihood": 3}, "log_likelihood is int, not a function"),
    ],
    ids=["summed", "extra axis", "too few", "boolean", "prior", "prior text", "likelihood number"],
)
def test_bad_prior_or_likelihood(changes, message):
    with pytest.raises(InputError, match=message):
        regression(**changes)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "`data` holds no arrays"),
        (
            {"x": np.zeros(3), "y": np.zeros(4)},
            r"(?s)unequal leading axes \(x: 3, y: 4\).*transposed",
        ),
        (np.zeros((0, 2)), "`data` is empty: its leading axis has length 0"),
        ({"x": POINTS, "n": np.float32(3.0)}, "n in `data` is a scalar"),
        (np.array(3.0), "data in `data` is a scalar"),
        ([1.0, 2.0], "0 in `data` is float, not an array"),
        (np.array(["a", "b"]), "`data`"),
    ],
    ids=["none", "unequal", "empty", "scalar among", "bare scalar", "list of floats", "text"],
)
def test_bad_data(data, message):
    with pytest.raises(InputError, match=message):
        regression(data=data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_density": log_prior}, "`like` is missing"),
        ({"like": 0.0}, "(?s)needs log_density, or log_prior, log_likelihood and data"),
        ({"like": 0.0, "log_prior": log_prior}, "log_likelihood, data missing"),
        (
            {"like": 0.0, "log_prior": log_prior, "log_likelihood": log_likelihood},
            "^data missing",
        ),
        (
            {"like": 0.0, "log_density": log_prior, "log_prior": log_prior, "data": POINTS},
            "both log_density and log_prior, data were given",
        ),
        (
            {"log_density": log_prior, "like": 0.0, "constraint": constraints.positive},
            r"(?s)'constraint' is not an option.*Try: 'constraints'\?",
        ),
        ({"log_densty": log_prior, "like": 0.0}, r"(?s)'log_densty'.*Try: 'log_density'\?"),
        ({"like": {}, "log_density": log_prior}, "no leaves"),
        (
            {"like": {"mu": 0, "sigma": 1.0}, "log_density": log_prior},
            "leaf mu of `like` has dtype int32",
        ),
        (
            {"like": {"mu": 0.0}, "log_density": log_prior, "constraints": {"mu": 3}},
            "3 is not a NumPyro constraint",
        ),
    ],
    ids=[
        "no like",
        "nothing",
        "two pieces missing",
        "data missing",
        "both forms",
        "misspelt constraints",
        "misspelt density",
        "no leaves",
        "integer like",
        "constraint of wrong type",
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        Target(**arguments)


def test_too_many_positional_arguments():
    with pytest.raises(InputError, match="cannot be called this way: too many positional"):
        Target(log_prior, {"mu": 0.0, "sigma": 0.0}, None, log_prior)


def test_the_users_own_error_comes_through_with_a_note():
    with pytest.raises(KeyError, match="nu") as caught:
        Target(lambda theta: theta["nu"], {"mu": 0.0})
    assert "raised by your log_density" in " ".join(caught.value.__notes__)


def python_if(theta):
    if theta["mu"] > 0:
        return theta["mu"]
    return -theta["mu"]


def python_while(theta):
    total = theta["mu"]
    while total < 3.0:
        total = 2.0 * total
    return total


def numpy_function(theta):
    return np.log(theta["mu"])


def python_float(theta):
    return jnp.sin(float(theta["mu"]))


def python_int(theta):
    return sum(jnp.cos(theta["mu"]) for _ in range(theta["mu"].astype(int)))


UNTRACED = [python_if, python_while, numpy_function, python_float, python_int]


def assert_points_to_jax(error, name):
    notes = "\n".join(error.__notes__)
    assert f"raised by your {name}" in notes
    assert "Likely cause: NumPy, or Python's if, while or float()" in notes
    assert "jax.numpy instead of numpy" in notes
    assert "jnp.where(condition, a, b) instead of if" in notes


@pytest.mark.parametrize("function", UNTRACED)
def test_python_or_numpy_inside_a_density_is_pointed_to_jax(function):
    like = {"mu": 0.0, "sigma": 1.0}
    calls = {
        "log_density": lambda: Target(function, like),
        "log_prior": lambda: regression(log_prior=function, constraints=None),
        "log_likelihood": lambda: regression(
            log_likelihood=lambda theta, batch: batch + function(theta), constraints=None
        ),
        "outputs": lambda: regression(outputs=function, constraints=None),
    }
    for name, call in calls.items():
        with pytest.raises(jax.errors.JAXTypeError) as caught:
            call()
        assert_points_to_jax(caught.value, name)


@pytest.mark.parametrize("function", UNTRACED)
def test_python_or_numpy_inside_a_structured_density_is_pointed_to_jax(function):
    parts = {
        "log_prior_global": lambda phi: norm.logpdf(phi["mu"]),
        "log_prior_local": lambda theta, phi: norm.logpdf(theta["mu"]),
        "log_likelihood": lambda theta, phi, row: norm.logpdf(row, theta["mu"]),
    }
    like = {"mu": 0.0}
    for name in parts:
        broken = {**parts, name: lambda first, *_: function(first)}
        with pytest.raises(jax.errors.JAXTypeError) as caught:
            StructuredTarget(**broken, data=POINTS, like_global=like, like_local=like)
        assert_points_to_jax(caught.value, name)


def test_errors_of_another_kind_are_not_pointed_to_jax():
    with pytest.raises(KeyError) as caught:
        Target(lambda theta: theta["nu"], {"mu": 0.0})
    assert "jnp.where" not in " ".join(caught.value.__notes__)


def wide(theta, batch):
    """Normal, by way of 1000 numbers per row."""
    residuals = jnp.broadcast_to(
        ((batch - theta["mu"]) / theta["sigma"])[:, None], (*batch.shape, 1000)
    )
    return -0.5 * jnp.mean(residuals**2, 1) - jnp.log(theta["sigma"])


@pytest.mark.parametrize("num_data", [5000, 4999])
def test_large_data_are_summed_in_chunks_of_rows(num_data, x64):
    points = np.random.default_rng(0).normal(size=num_data)
    target = regression(log_likelihood=wide, data=points)
    assert target.rows_at_once < num_data / 2
    x = jnp.array([0.3, -0.4])
    found, gradient = jax.jit(jax.value_and_grad(target.log_density))(x)
    whole = regression(
        log_likelihood=lambda theta, batch: (
            -0.5 * ((batch - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"])
        ),
        data=points,
    )
    assert whole.rows_at_once == num_data
    expected, expected_gradient = jax.value_and_grad(whole.log_density)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9)


def test_memory_of_large_data_does_not_grow_with_the_rows():
    def held(num_data):
        target = regression(log_likelihood=wide, data=jnp.ones(num_data))
        evaluate = jax.jit(jax.vmap(jax.grad(target.log_density), (0, None)))
        return evaluate.lower(jnp.ones((8, 2)), target.data).compile().memory_analysis()

    few, many = (held(count).temp_size_in_bytes for count in (5000, 50000))
    assert many < 1.1 * few + 8 * 50000 * 4


@pytest.mark.parametrize(("rows", "at_once"), [(7, 3), (6, 3), (3, 3), (2, 3), (5, 1)])
def test_a_sum_over_rows_sees_every_row_once(rows, at_once):
    data = {"a": jnp.arange(1.0, rows + 1), "b": jnp.ones((rows, 2))}
    found = sum_over_rows(lambda part: part["a"] * part["b"][:, 0], data, at_once)
    assert found == rows * (rows + 1) / 2
