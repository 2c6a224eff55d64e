"""The estimators of the control cost: same expectation, different variance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.drifts import GaussianDrift
from follmer.objectives import LogVariance, Problem, as_objective, det, relative_entropy, stl
from follmer.paths import Diffusion, grid_times, uniform
from follmer.tools.normals import standard_normals

MEAN, SD = jnp.array([0.5]), 0.5


class Perturbed(eqx.Module):
    """The exact drift of N(MEAN, SD²) plus a trained perturbation a·φ(t, x)."""

    a: jax.Array

    def __call__(self, t, x):
        exact = GaussianDrift(MEAN, SD**2 * jnp.eye(1))(t, x)
        return exact + self.a[0] + self.a[1] * jnp.sin(2 * x) * t


def log_density(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, MEAN, SD))


def problem(num_steps, num_paths=1, log_density=log_density, gamma=1.0, is_minibatch=False):
    diffusion = Diffusion(1, gamma, grid_times(uniform, num_steps), jnp.float32)

    def log_factor(x):
        return log_density(x) - diffusion.log_reference(x)

    return Problem(diffusion, log_density, log_factor, num_paths, is_minibatch)


def loss_of(objective, drift, case, key):
    """The value of an objective that has no memory."""
    return as_objective(objective).loss(drift, case, None, key)[0]


def gradients(objective, a, num_steps, num_keys, num_paths=1):
    """Independent draws of the gradient, one row per key."""
    case = problem(num_steps, num_paths)
    gradient = jax.grad(lambda a, key: loss_of(objective, Perturbed(a), case, key))
    keys = jax.random.split(jax.random.key(3), num_keys)
    return np.asarray(jax.jit(jax.vmap(gradient, (None, 0)))(a, keys), float)


def test_stl_sticks_the_landing_and_relative_entropy_does_not():
    at_optimum = jnp.zeros(2)
    steps = (20, 80, 320)
    sds = {
        objective: [gradients(objective, at_optimum, k, 1000).std(axis=0) for k in steps]
        for objective in (stl, relative_entropy)
    }
    for coarse, fine in zip(sds[stl], sds[stl][1:], strict=False):
        # The sd is O(Δt); a quarter of the step leaves well under half of it.
        assert (fine < 0.4 * coarse).all()
    assert (sds[relative_entropy][-1] > 0.8 * sds[relative_entropy][0]).all()
    assert (sds[stl][-1] < 0.02 * sds[relative_entropy][-1]).all()


@pytest.mark.parametrize(
    ("objective", "factor", "num_paths"),
    # On-policy, the gradient of the log variance has twice the mean of the others'.
    [(relative_entropy, 1, 1), (stl, 1, 1), (LogVariance(), 2, 8)],
)
def test_gradients_agree_in_expectation(objective, factor, num_paths):
    away = jnp.array([0.4, 1.5])
    plain = gradients(det, away, 10, 20_000)
    other = gradients(objective, away, 10, 20_000, num_paths) / factor
    difference = plain.mean(axis=0) - other.mean(axis=0)
    se = np.sqrt((plain.var(axis=0) + other.var(axis=0)) / 20_000)
    assert (np.abs(difference) < 4.5 * se).all()
    # The gradient itself is far from zero, so agreement says something.
    assert (np.abs(plain.mean(axis=0)) > 10 * se).all()


def test_the_stl_value_is_the_relative_entropy_value():
    case, key, away = problem(10, 64), jax.random.key(0), jnp.array([0.4, -0.6])
    values = [loss_of(one, Perturbed(away), case, key) for one in (stl, relative_entropy)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)


@pytest.mark.parametrize("sampling_drift", [None, lambda t, x: jnp.sin(3 * x) + t])
def test_log_variance_vanishes_at_the_optimum_on_any_paths(sampling_drift):
    objective = LogVariance(sampling_drift=sampling_drift)

    def loss(a, num_steps):
        return float(loss_of(objective, Perturbed(a), problem(num_steps, 4000), jax.random.key(0)))

    optimum, away = jnp.zeros(2), jnp.array([0.4, -0.6])
    assert loss(optimum, 400) < 0.3 * loss(optimum, 50) < 0.3 * loss(away, 50)


def test_observation_1_the_loss_is_the_negative_elbo_of_the_latent_sde():
    """With prior N(0, γI) the loss is E[Σ|u|²Δt/2γ − ln p(X|Θ_1)], by a loop written out."""
    gamma, num_steps, num_paths = 0.7, 6, 5
    data = jnp.array([0.2, 1.1, 0.7])

    def log_likelihood(x):
        return jnp.sum(jax.scipy.stats.norm.logpdf(data, x[0], 0.5))

    def log_joint(x):
        return log_likelihood(x) + jax.scipy.stats.norm.logpdf(x[0], 0, jnp.sqrt(gamma))

    def drift(t, x):
        return jnp.cos(x) + t

    case = problem(num_steps, num_paths, log_joint, gamma)
    loss, _ = det(drift, case, jax.random.key(0))

    noise = standard_normals(jax.random.key(0), (num_steps, num_paths, 1))
    costs = []
    for path in np.swapaxes(np.asarray(noise, float), 0, 1):
        x, cost, dt = np.zeros(1), 0.0, 1 / num_steps
        for j, epsilon in enumerate(path):
            u = np.cos(x) + j * dt
            cost += np.sum(u**2) * dt / (2 * gamma)
            x = x + u * dt + np.sqrt(gamma * dt) * epsilon
        costs.append(cost - float(log_likelihood(jnp.asarray(x))))
    np.testing.assert_allclose(loss, np.mean(costs), rtol=1e-5)


@pytest.mark.parametrize("objective", [det, relative_entropy, stl])
def test_minibatch_gradients_average_to_the_full_batch_gradient(objective):
    import follmer

    target = follmer.Target(
        log_prior=lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        log_likelihood=lambda theta, batch: jax.scipy.stats.norm.logpdf(batch, theta[0]),
        data=jnp.linspace(-1.0, 2.0, 12) ** 2,
        like=jnp.zeros(1),
    )

    def gradient(batch, is_minibatch):
        log_density = lambda x: target.log_density(x, batch)  # noqa: E731
        case = problem(5, 16, log_density, is_minibatch=is_minibatch)
        loss = lambda a: objective(Perturbed(a), case, jax.random.key(0))[0]  # noqa: E731
        return jax.grad(loss)(jnp.array([0.4, -0.6]))

    batches = [target.data[i : i + 3] for i in range(0, 12, 3)]
    averaged = jnp.mean(jnp.stack([gradient(batch, True) for batch in batches]), axis=0)
    np.testing.assert_allclose(averaged, gradient(target.data, False), rtol=1e-4)
    # Batches differ, so the average is not trivially the whole.
    assert float(jnp.abs(gradient(batches[0], True) - averaged).max()) > 0.1
