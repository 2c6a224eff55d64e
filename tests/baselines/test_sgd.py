import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.distributions import constraints
from scipy.optimize import minimize

from follmer import InputError, NonFiniteError, Posterior, Target, sgd
from scenarios import logistic_regression

QUIET = {"progress": False}


def mode(target):
    """By SciPy's L-BFGS."""
    with jax.enable_x64(True):
        loss = jax.value_and_grad(lambda x: -target.log_density(x))
        return minimize(lambda x: tuple(map(np.asarray, loss(x))), np.zeros(2), jac=True).x


@pytest.fixture(scope="module")
def target():
    return logistic_regression()


@pytest.fixture(scope="module")
def posterior(target):
    return sgd(target, key=jax.random.key(0), num_iterations=2000, **QUIET)


def test_it_reaches_the_mode_of_a_logistic_regression(target, posterior):
    np.testing.assert_allclose(posterior.sampler.draws[0, 0], mode(target), atol=1e-3)


def test_mini_batches_reach_it_too(target, key):
    found = sgd(target, key=key, num_iterations=3000, batch_size=5, **QUIET).sampler.draws[0, 0]
    # Adam ends at a vanishing rate, but not before the batches have shaken it a little.
    np.testing.assert_allclose(found, mode(target), atol=0.15)


def test_any_optimiser_can_be_used(target, key):
    options = {"num_iterations": 300, "optimizer": optax.sgd(0.1), **QUIET}
    found = sgd(target, key=key, **options).sampler.draws[0, 0]
    np.testing.assert_allclose(found, mode(target), atol=1e-3)


def test_the_learning_rate_is_adams(target, key):
    start = {"intercept": 1.0, "slope": 1.0}
    options = {"key": key, "num_iterations": 1, "start": start, **QUIET}
    for rate in (0.25, lambda count: 0.25):
        moved = sgd(target, learning_rate=rate, **options).sampler.draws
        np.testing.assert_allclose(np.abs(moved - 1), 0.25, rtol=1e-4)


def test_every_draw_is_the_same_point(posterior, key):
    draws = posterior.sample(7, key=key)
    assert {name: leaf.shape for name, leaf in draws.items()} == {"intercept": (7,), "slope": (7,)}
    assert all(np.ptp(leaf) == 0 for leaf in draws.values())


def test_the_loss_is_in_the_history(target, posterior):
    losses = posterior.history["loss"]
    assert losses.shape == (2000,)
    assert posterior.gradient_evaluations == 2000
    last = -target.log_density(jnp.asarray(posterior.sampler.draws[0, 0]))
    np.testing.assert_allclose(losses[-1], last, rtol=1e-5)
    assert losses[0] > losses[-1]


def test_the_mode_is_that_of_the_unconstrained_coordinates(key):
    # Gamma(3, 1) has its mode at 2; its logarithm is most probable at ln 3.
    target = Target(lambda theta: 2 * jnp.log(theta) - theta, jnp.ones(()), constraints.positive)
    found = sgd(target, key=key, num_iterations=1500, **QUIET).sample(1, key=key)
    np.testing.assert_allclose(found, 3.0, rtol=1e-3)


def test_it_is_a_posterior_that_proves_nothing(posterior, key):
    assert type(posterior) is Posterior
    found = posterior.diagnostics(key=key)
    assert (found.num_chains, found.num_draws) == (1, 1)
    assert np.isnan([found.rhat, found.ess_fraction]).all()
    summary = posterior.summary(key=key)
    assert "a point estimate" in summary
    assert "Verdict: no proof of quality. One point" in summary


def test_double_precision(x64, key):
    target = Target(lambda x: -jnp.sum(x**2), jnp.zeros(2))
    assert sgd(target, key=key, num_iterations=3, **QUIET).sample(3, key=key).dtype == jnp.float64


def test_a_descent_that_diverges_raises(key):
    target = Target(lambda x: -jnp.sum(x**4), jnp.ones(2))
    with pytest.raises(NonFiniteError, match=r"(?s)SGD is no longer finite.*learning_rate"):
        sgd(target, key=key, optimizer=optax.sgd(100.0), start=jnp.ones(2), **QUIET)


def test_an_end_that_is_not_finite_raises(key):
    target = Target(lambda x: -jnp.sum(x**2), jnp.ones(2))
    with pytest.raises(NonFiniteError, match="ended in a point that is not finite"):
        sgd(target, key=key, optimizer=optax.scale(jnp.inf), num_iterations=1, **QUIET)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_iterations": 0}, "num_iterations must be a whole number"),
        ({"batch_size": 21}, "batch_size=21 exceeds the 20 data points"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"learning_rate": -1.0}, "learning_rate must be a finite number above 0"),
        ({"optimizer": optax.adam}, "optimizer is function, not an Optax optimiser"),
        ({"optimizer": optax.adam(1.0), "learning_rate": 1.0}, "both learning_rate and optimizer"),
        ({"start": {"slope": 0.0}}, "differs from that of `like`"),
        ({"start": {"slope": 0.0, "intercept": np.nan}}, "start is not finite"),
        ({"key": 0}, "key is not a JAX random key"),
        ({"optimiser": optax.adam(1.0)}, r"(?s)'optimiser' is not an option.*'optimizer'\?"),
    ],
)
def test_bad_options(target, key, options, message):
    with pytest.raises(InputError, match=message):
        sgd(target, **{"key": key, **QUIET} | options)


def test_what_is_no_target_is_refused(key):
    with pytest.raises(InputError, match=r"target is function, not a follmer.Target"):
        sgd(jnp.sum, key=key)
