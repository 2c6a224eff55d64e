"""The first stage: the prior's process, in closed form or fitted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import laplace, multivariate_normal, norm
from jax.scipy.stats import t as student
from numpyro.distributions import constraints

from follmer import InputError, Target, load, prior_process
from follmer.plans.gaussian import as_gaussian

KEY = jax.random.key(0)
COVARIANCE = jnp.array([[4.0, 1.2], [1.2, 0.5]])
TINY = {
    "num_steps": 3,
    "num_paths": 4,
    "num_iterations": 10,
    "drift_options": {"width": 4, "depth": 1},
    "progress": False,
    "audit": False,
}


def independent(theta):
    return jnp.sum(norm.logpdf(theta, jnp.array([3.0, -0.2]), jnp.array([2.0, 0.1])))


def correlated(theta):
    return multivariate_normal.logpdf(theta, jnp.array([1.0, -2.0]), COVARIANCE)


def lasso(theta):
    return jnp.sum(laplace.logpdf(theta))


def with_data(log_prior, scale=1.0):
    return Target(
        log_prior=log_prior,
        log_likelihood=lambda theta, batch: norm.logpdf(batch, theta[0], scale),
        data=jnp.array([0.3, 0.9, -0.5]),
        like=jnp.zeros(2),
    )


def assert_is_exact(process):
    """Nothing was trained, and every draw weighs 1."""
    assert process.history == {}
    assert "closed form" in process.summary(key=KEY)
    np.testing.assert_allclose(process.log_weights(64, key=KEY), 0.0, atol=1e-3)


@pytest.mark.parametrize("gamma", [1.0, 0.3])
@pytest.mark.parametrize("log_prior", [independent, correlated])
def test_a_gaussian_prior_has_its_process_in_closed_form(log_prior, gamma):
    process = prior_process(with_data(log_prior), key=KEY, gamma=gamma)
    assert_is_exact(process)
    assert process.sampler.process.gamma == gamma


def test_its_draws_are_those_of_the_prior():
    draws = np.asarray(prior_process(with_data(correlated), key=KEY).sample(4096, key=KEY))
    sd = np.sqrt(np.diag(COVARIANCE))
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0], atol=4.5 * sd.max() / 64)
    np.testing.assert_allclose(np.corrcoef(draws.T)[0, 1], 1.2 / np.prod(sd), atol=0.03)
    # The sd of an sd is sd/√(2n).
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=4.5 / np.sqrt(2 * 4096))


def test_gaussian_means_gaussian_in_unconstrained_coordinates():
    prior = Target(
        lambda theta: norm.logpdf(jnp.log(theta["scale"]), 1.0, 0.5) - jnp.log(theta["scale"]),
        like={"scale": jnp.ones(())},
        constraints={"scale": constraints.positive},
    )
    process = prior_process(prior, key=KEY)
    assert_is_exact(process)
    assert float(process.sample(8, key=KEY)["scale"].min()) > 0


def test_a_gaussian_prior_of_many_dimensions_is_recognised():
    prior = Target(lambda theta: jnp.sum(norm.logpdf(theta, 0.0, 0.3)), like=jnp.zeros(5000))
    assert_is_exact(prior_process(prior, key=KEY, num_steps=2))


@pytest.mark.parametrize(
    "log_prior",
    [
        lasso,
        lambda theta: jnp.sum(student.logpdf(theta, 20.0)),
        lambda theta: jnp.logaddexp(independent(theta), correlated(theta)),
    ],
)
def test_other_priors_are_not_taken_for_gaussian(log_prior):
    assert as_gaussian(Target(log_prior, like=jnp.zeros(2)), KEY) is None


@pytest.mark.slow
def test_any_other_prior_is_fitted():
    process = prior_process(with_data(lasso), key=KEY, **TINY)
    assert len(process.history["loss"]) == 10
    assert process.sampler.process.drift == "time_mlp"
    # A process of the prior has not seen the data.
    assert process.target.num_data is None
    (note,) = process.notes
    assert note.startswith("64 climbs from starts up to 1000 units away found one mode: ")
    assert "(flow: " in note


def test_with_coordinates_of_your_own_the_prior_is_fitted():
    process = prior_process(with_data(independent), key=KEY, precondition="identity", **TINY)
    assert len(process.history["loss"]) == 10


def test_a_target_may_be_the_prior_itself():
    one = prior_process(Target(correlated, like=jnp.zeros(2)), key=KEY)
    two = prior_process(with_data(correlated), key=KEY)
    np.testing.assert_array_equal(one.sample(4, key=KEY), two.sample(4, key=KEY))


@pytest.mark.parametrize("log_prior", [correlated, lasso])
def test_a_process_can_be_saved_and_loaded(tmp_path, log_prior):
    target = with_data(log_prior)
    process = prior_process(target, key=KEY, **TINY)
    process.save(tmp_path / "prior")
    loaded = load(tmp_path / "prior", target.prior)
    np.testing.assert_array_equal(loaded.sample(4, key=KEY), process.sample(4, key=KEY))
    assert loaded.notes == process.notes


@pytest.mark.parametrize("log_prior", [correlated, lasso])
def test_an_unknown_option_is_an_error_for_every_prior(log_prior):
    with pytest.raises(InputError, match=r"'num_step' is not an option.*\n.*\n.*'num_steps'"):
        prior_process(with_data(log_prior), key=KEY, num_step=3)


def test_the_prior_of_a_target_is_a_target_without_data():
    target = with_data(correlated)
    x = jnp.array([0.3, -1.0])
    assert target.prior.num_data is None
    np.testing.assert_allclose(target.prior.log_density(x), correlated(x), rtol=1e-6)
    np.testing.assert_allclose(
        target.prior.log_density(x) + target.log_likelihood(x), target.log_density(x), rtol=1e-6
    )
    assert float(target.prior.log_likelihood(x)) == 0.0
    assert target.num_data == 3
