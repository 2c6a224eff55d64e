"""The bench's targets are what their truths say they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from follmer.bench.targets import CASES, linear_regression, regression
from follmer.errors import FileError


def built(name):
    try:
        return CASES[name].build()
    except FileError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip("its data are not here")


@pytest.mark.parametrize("name", CASES)
def test_density_and_gradient_are_finite_near_the_origin(name):
    target = built(name)
    x = 0.1 * jax.random.normal(jax.random.key(0), (target.dim,))
    value, gradient = jax.jit(jax.value_and_grad(target.log_density))(x)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("ionosphere", 35),
        ("german_credit", 25),
        ("breast_cancer", 31),
        ("cox_process", 1600),
        ("a9a", 124),
        ("step_function", 10401),
        ("linear_regression_d2048", 2049),
    ],
)
def test_dimensions_are_the_issues(name, dim):
    assert built(name).dim == dim


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("gaussian_r1e-4", (-600.0, 1000.0)),
        ("gaussian_r1", (-6.0, 10.0)),
        ("gaussian_r400", (-0.3, 0.5)),
        ("double_well", (-3.0, 6.0)),
        ("mixture2", (-6.0, 6.0)),
        ("mixture4", (-6.0, 6.0)),
        ("gmm25", (-14.0, 14.0)),
    ],
)
def test_evidence_is_the_integral_of_the_density(name, bounds, x64):
    target = CASES[name].build()
    axis = np.linspace(*bounds, 1001)
    points = np.stack(np.meshgrid(*[axis] * target.dim, indexing="ij"), -1)
    values = jax.jit(jax.vmap(target.log_density))(jnp.asarray(points.reshape(-1, target.dim)))
    integral = logsumexp(values) + target.dim * np.log(axis[1] - axis[0])
    assert integral == pytest.approx(CASES[name].log_evidence, abs=1e-4)


def test_many_well_is_five_double_wells(x64):
    axis = np.linspace(-4.0, 4.0, 4001)
    one = logsumexp(-((axis**2 - 4.0) ** 2)) + np.log(axis[1] - axis[0])
    assert CASES["many_well"].log_evidence == pytest.approx(5 * one, abs=1e-4)
    assert CASES["many_well"].modes().shape == (32, 5)


def test_modes_are_modes(x64):
    for name, case in CASES.items():
        if case.modes is not None:
            target = case.build()
            gradient = jax.jit(jax.vmap(jax.grad(target.log_density)))(jnp.asarray(case.modes()))
            assert jnp.abs(gradient).max() < 1e-6, name


def test_the_regression_is_the_papers():
    known = regression(64, 0)
    assert known.rows.shape == known.test_rows.shape == (65, 65)
    assert (known.rows[:, -1] == 1).all()
    residual = known.y - known.rows.sum(axis=1)
    assert np.std(residual) == pytest.approx(0.2, abs=4 * 0.2 / np.sqrt(2 * 65))


def test_the_regressions_evidence_is_that_of_its_marginal():
    known = regression(8, 0)
    covariance = known.rows @ known.rows.T + 0.04 * np.eye(9)
    expected = stats.multivariate_normal.logpdf(known.y, np.zeros(9), covariance)
    assert known.log_evidence() == pytest.approx(expected)


def test_the_regressions_target_has_its_evidence_and_posterior(x64):
    """At any point, prior · likelihood = evidence · posterior."""
    known = regression(32, 0)
    target = linear_regression(known)
    mean, factor = known.posterior
    posterior = stats.multivariate_normal(mean, factor @ factor.T)
    for point in mean + np.random.default_rng(0).normal(size=(3, 33)):
        log_evidence = target.log_density(jnp.asarray(point)) - posterior.logpdf(point)
        assert float(log_evidence) == pytest.approx(known.log_evidence(), rel=1e-8)


def test_a_regression_cases_truth_is_computed_when_asked_for():
    case = CASES["linear_regression_d32"]
    assert case.true_log_evidence() == regression(32, 0).log_evidence()
    assert CASES["a9a"].true_log_evidence() is None
