"""The structured examples: at toy size, and against exact posteriors and NUTS at their own."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.targets.affine import from_covariance

EXAMPLES = Path(__file__).parents[2] / "examples"
TOY = {"num_iterations": 20, "audit": False, "progress": False}


@pytest.fixture(scope="module")
def factor_analysis():
    return runpy.run_path(str(EXAMPLES / "factor_analysis.py"))


@pytest.fixture(scope="module")
def hierarchical_regression():
    return runpy.run_path(str(EXAMPLES / "hierarchical_regression.py"))


def test_the_exact_factors_are_those_of_the_joint_density(factor_analysis, key):
    """The gradient of ln p(θ, x|Φ) vanishes at their mean; its curvature is their precision."""
    points = factor_analysis["simulated"](3, key)
    target = factor_analysis["model"](points)
    phi = target.constrain(0.3 * jax.random.normal(key, (target.dim,)))["global"]
    means, variances = factor_analysis["exact_factors"](phi, points)

    def log_joint(theta, x):
        return target.log_prior_local(theta, phi) + target.log_likelihood(theta, phi, x)

    for mean, variance, x in zip(means, variances, points, strict=True):
        np.testing.assert_allclose(jax.grad(log_joint)(mean, x), 0.0, atol=1e-4)
        covariance = np.linalg.inv(-np.asarray(jax.hessian(log_joint)(mean, x)))
        np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-4)


def test_frames_of_the_factors_are_exact_wherever_the_globals_are(factor_analysis, key):
    points = factor_analysis["simulated"](3, key)
    target = factor_analysis["model"](points)
    dim = target.global_dim
    target = target.whitened(from_covariance(np.zeros(dim), 0.01 * np.eye(dim), "float32"))
    shared = jax.random.normal(key, (dim,))

    def placed(z):
        return target.constrain(jnp.concatenate([shared, jnp.tile(jnp.asarray(z), 3)]))

    origin = placed([0.0, 0.0])
    means, variances = factor_analysis["exact_factors"](origin["global"], points)
    np.testing.assert_allclose(origin["local"], means, atol=1e-4)
    roots = [placed(unit)["local"] - origin["local"] for unit in np.eye(2, dtype=np.float32)]
    np.testing.assert_allclose(sum(root**2 for root in roots), variances, rtol=1e-3)


def test_worst_errors_tell_right_from_wrong_factors(factor_analysis, key):
    num = 4096
    points = factor_analysis["simulated"](3, key)
    target = factor_analysis["model"](points)
    phi = target.constrain(jnp.zeros(target.dim))["global"]
    means, variances = factor_analysis["exact_factors"](phi, points)
    factors = means + jnp.sqrt(variances) * jax.random.normal(key, (num, *means.shape))
    phis = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *jnp.shape(leaf))), phi)

    def errors(factors):
        return factor_analysis["worst_errors"](factors, phis, np.full(num, 1 / num), points)

    mean, sd = errors(factors)
    assert mean < 4 / np.sqrt(num)
    assert sd < 4 / np.sqrt(2 * num)
    assert abs(errors(factors + jnp.sqrt(variances))[0] - 1) < 4 / np.sqrt(num)
    assert abs(errors(means + 2 * (factors - means))[1] - 1) < 8 / np.sqrt(2 * num)


def test_houses_that_pad_a_county_do_not_count(hierarchical_regression, key):
    counties = hierarchical_regression["simulated"](5, key)
    changed = {**counties, "radon": counties["radon"] + 7.0 * (1 - counties["mask"])}
    model = hierarchical_regression["model"]
    x = jax.random.normal(key, (model(counties).dim,))
    np.testing.assert_allclose(model(changed).log_density(x), model(counties).log_density(x))


@pytest.mark.slow
def test_differences_of_globals_are_in_standard_deviations(hierarchical_regression, key):
    target = hierarchical_regression["model"](hierarchical_regression["simulated"](8, key))
    posterior = follmer.fit(target, key=key, **TOY)
    chains = follmer.nuts(
        target.joint(), key=key, num_samples=50, num_warmup=50, num_chains=2, progress=False
    )
    rows = hierarchical_regression["differences"](posterior, chains, 100, key)
    assert set(rows) == {"level", "uranium", "floor", "noise", "spread"}
    truth = np.asarray(chains.sample(100, key=key)["global"]["floor"])
    ours = posterior.expectation(lambda draw: draw["global"]["floor"], key=key, num_samples=100)
    expected = (truth.mean(), truth.std(), (ours - truth.mean()) / truth.std())
    np.testing.assert_allclose(rows["floor"], expected, rtol=1e-4)


@pytest.mark.slow
def test_factors_of_old_and_new_points_are_the_exact_ones(factor_analysis):
    found = factor_analysis["run"](
        num_points=300, num_draws=16384, key=jax.random.key(2), progress=False
    )
    for mean, sd in (found["own"], found["new"]):
        assert mean < 0.05
        assert sd < 0.05


@pytest.mark.slow
def test_globals_of_the_regression_are_those_of_nuts(hierarchical_regression, key):
    target = hierarchical_regression["model"](hierarchical_regression["simulated"](60, key))
    posterior = follmer.fit(target, key=key, progress=False)
    chains = follmer.nuts(target.joint(), key=key, num_samples=2000, progress=False)
    rows = hierarchical_regression["differences"](posterior, chains, 8000, key)
    assert max(abs(off) for _, _, off in rows.values()) < 0.1
