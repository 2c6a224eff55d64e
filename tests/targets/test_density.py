"""A target seen from the host: values, gradients, counts, and one program for all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

from compilations import compiled
from follmer import NonFiniteError, StructuredTarget, Target
from follmer.targets import Density, values_and_gradients
from follmer.targets.affine import diagonal, from_covariance

MEAN = np.array([0.5, -1.0, 2.0])
COVARIANCE = np.array([[2.0, 0.6, 0.0], [0.6, 0.5, -0.1], [0.0, -0.1, 0.1]])
PRECISION = np.linalg.inv(COVARIANCE)
# Either side of the number of points that are evaluated together.
COUNTS = [1, 2, 7, 8, 9, 63, 64, 65, 128, 200]
POINTS = np.linspace(-1.0, 2.0, 12)


def gaussian():
    # Copies: JAX remembers a NumPy array in the precision in which a program first closed over it.
    mean, covariance = jnp.array(MEAN.copy()), jnp.array(COVARIANCE.copy())
    return Target(
        lambda x: jax.scipy.stats.multivariate_normal.logpdf(x, mean, covariance),
        like=jnp.zeros(3),
    )


def expensive():
    """The same density, by way of a product that takes long."""

    mean = jnp.array(MEAN.copy())
    # XLA of JAX 0.10 takes the product of two arrays of ones wrongly inside of a loop.
    matrix = jnp.array(np.random.default_rng(0).normal(size=(3, 200)))

    def log_density(x):
        wide = jnp.broadcast_to(x, (2000, 3)) @ matrix
        nothing = 0.0 * jnp.sum(wide)
        return nothing + jnp.sum(norm.logpdf(x, mean))

    return Target(log_density, like=jnp.zeros(3))


def points(count, seed=0):
    return MEAN + np.random.default_rng(seed).normal(size=(count, 3))


@pytest.mark.parametrize("count", COUNTS)
def test_values_and_gradients_are_those_of_a_gaussian_at_any_number_of_points(count, x64):
    x = points(count)
    values, gradients = Density(gaussian())(x)
    expected = np.atleast_1d(stats.multivariate_normal(MEAN, COVARIANCE).logpdf(x))
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(gradients, -(x - MEAN) @ PRECISION, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(Density(gaussian()).values(x), values)


@pytest.mark.parametrize("build", [gaussian, expensive])
def test_results_are_host_arrays_in_double_precision(build):
    values, gradients = Density(build())(points(5))
    assert type(values) is type(gradients) is np.ndarray
    assert values.dtype == gradients.dtype == np.float64
    assert (values.shape, gradients.shape) == ((5,), (5, 3))


@pytest.mark.parametrize("count", COUNTS)
def test_few_at_a_time_are_the_same_points(count):
    x = points(count)
    density = Density(expensive())
    values, gradients = density(x)
    np.testing.assert_allclose(values, stats.norm.logpdf(x, MEAN).sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradients, MEAN - x, rtol=1e-5, atol=1e-5)
    assert density.gradient_evaluations == count


def test_no_points_have_no_values():
    density = Density(gaussian())
    values, gradients = density(np.zeros((0, 3)))
    assert (values.shape, gradients.shape) == ((0,), (0, 3))
    assert density.gradient_evaluations == 0


def test_every_point_asked_for_is_counted_once():
    density = Density(gaussian())
    assert density.gradient_evaluations == 0
    for count in COUNTS:
        density(points(count))
    assert density.gradient_evaluations == sum(COUNTS)
    density.values(points(3))
    assert density.gradient_evaluations == sum(COUNTS) + 3
    assert Density(gaussian()).gradient_evaluations == 0


@pytest.mark.parametrize("build", [gaussian, expensive])
def test_any_number_of_points_takes_one_program(build):
    target = build()
    assert compiled(Density(target), points(1)) == 1
    assert [compiled(Density(target), points(count)) for count in COUNTS] == [0] * len(COUNTS)
    assert compiled(Density(target).values, points(17)) == 0


def test_points_that_are_not_finite_do_not_spoil_others():
    x = points(70)
    x[[3, 69]] = np.inf
    values, gradients = Density(gaussian())(x)
    sound = np.delete(np.arange(70), [3, 69])
    assert np.isfinite(values[sound]).all()
    assert np.isfinite(gradients[sound]).all()
    assert not np.isfinite(values[[3, 69]]).any()


def test_a_whitened_target_is_seen_in_its_own_coordinates(x64):
    affine = from_covariance(MEAN.copy(), COVARIANCE, "float64")
    z = points(9) - MEAN
    values, gradients = Density(gaussian().whitened(affine))(z)
    np.testing.assert_allclose(values, stats.norm.logpdf(z).sum(1), rtol=1e-8)
    np.testing.assert_allclose(gradients, -z, rtol=1e-7, atol=1e-8)


def test_a_structured_target_is_seen_with_all_its_locals(x64):
    data = np.array([0.3, -0.7])
    target = StructuredTarget(
        log_prior_global=norm.logpdf,
        log_prior_local=norm.logpdf,
        log_likelihood=lambda theta, phi, x: norm.logpdf(x, theta),
        data=data,
        like_global=jnp.zeros(()),
        like_local=jnp.zeros(()),
    )
    x = points(5)
    values, gradients = Density(target)(x)
    phi, theta = x[:, :1], x[:, 1:]
    terms = [stats.norm.logpdf(phi), stats.norm.logpdf(theta, phi), stats.norm.logpdf(data, theta)]
    np.testing.assert_allclose(values, sum(term.sum(1) for term in terms), rtol=1e-10)
    slopes = np.hstack([(theta - phi).sum(1, keepdims=True) - phi, phi + data - 2 * theta])
    np.testing.assert_allclose(gradients, slopes, rtol=1e-10)


def test_the_device_function_agrees_with_the_host_one():
    target, x = gaussian(), points(6)
    values, gradients = values_and_gradients(target, jnp.asarray(x))
    found = Density(target)(x)
    np.testing.assert_allclose(found[0], values, rtol=1e-6)
    np.testing.assert_allclose(found[1], gradients, rtol=1e-6)


def spoilt(array, rows, value=np.nan):
    array = np.array(array, np.float32)
    array[rows] = value
    return array


def target(data, read=lambda batch: batch):
    return Target(
        log_prior=norm.logpdf,
        log_likelihood=lambda theta, batch: norm.logpdf(read(batch), theta),
        data=data,
        like=0.0,
    )


TABLE = spoilt(np.ones((12, 3)), ([4, 4, 9], [0, 2, 1]))


@pytest.mark.parametrize(
    ("data", "read", "message"),
    [
        (spoilt(POINTS, 3), lambda b: b, "Likely cause: `data` is not finite in row 3\n"),
        (spoilt(POINTS, [2, 7]), lambda b: b, "Likely cause: `data` is not finite in row 2, 7\n"),
        (spoilt(POINTS, 0, np.inf), lambda b: b, "`data` is not finite in row 0\n"),
        (TABLE, lambda b: b.sum(1), "`data` is not finite in row 4, 9\n"),
        (
            {"x": POINTS, "y": spoilt(POINTS, 11)},
            lambda b: b["x"] + b["y"],
            "Likely cause: y in `data` is not finite in row 11\n",
        ),
        (
            (POINTS, {"a": TABLE, "n": np.arange(12), "flag": POINTS > 0}),
            lambda b: b[0] + b[1]["a"].sum(1),
            "Likely cause: 1.a in `data` is not finite in row 4, 9\n",
        ),
        (
            {"x": spoilt(POINTS, 1), "y": spoilt(POINTS, 2)},
            lambda b: b["x"] + b["y"],
            "x in `data` is not finite in row 1; y in `data` is not finite in row 2\n",
        ),
        (
            spoilt(POINTS, np.arange(3, 12)),
            lambda b: b,
            "`data` is not finite in row 3, 4, 5, 6, 7 and 4 more\n",
        ),
    ],
    ids=["one", "two", "infinite", "table", "named", "nested", "two arrays", "many"],
)
def test_missing_values_are_named_with_their_array_and_rows(data, read, message, key):
    for one in (target(data, read), target(data, read).whitened(diagonal([0.1], [2.0], "float32"))):
        with pytest.raises(NonFiniteError, match=r"not finite at 128 of 128 starting draws") as bad:
            one.check(key=key)
        assert message in str(bad.value)
        assert "because of leaf" not in str(bad.value)


def test_missing_values_that_the_likelihood_leaves_out_are_fine(key):
    masked = target(spoilt(POINTS, [3, 5]), lambda batch: jnp.where(batch > -9, batch, 0.0))
    assert masked.check(key=key).num_draws == 128


def test_sound_data_are_not_blamed(key):
    with pytest.raises(NonFiniteError, match="outside the density's support") as bad:
        target(POINTS, lambda batch: batch / 0.0).check(key=key)
    assert "`data`" not in str(bad.value)


def structured(data, read):
    return StructuredTarget(
        log_prior_global=norm.logpdf,
        log_prior_local=norm.logpdf,
        log_likelihood=lambda theta, phi, row: norm.logpdf(read(row), theta),
        data=data,
        like_global=jnp.zeros(()),
        like_local=jnp.zeros(()),
    )


@pytest.mark.parametrize("row", [0, 5, 501, 999])
def test_a_structured_target_names_the_users_own_row_out_of_many(row, key):
    points = np.linspace(-1.0, 2.0, 1000)
    with pytest.raises(NonFiniteError, match=f"cause: `data` is not finite in row {row}\n"):
        structured(spoilt(points, row), lambda row: row).check(key=key)
    pair = {"x": points, "y": spoilt(points, row)}
    with pytest.raises(NonFiniteError, match=f"cause: y in `data` is not finite in row {row}\n"):
        structured(pair, lambda row: row["x"] + row["y"]).check(key=key)
