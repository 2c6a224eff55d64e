"""Descents, chains from their ends, and what an interrupted run leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer import NonFiniteError
from follmer.mcmc import descents, ensembles
from follmer.mcmc.ensembles import Schedule, run_ensemble

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
Y = X @ [1.0, -0.5] + 0.5 * rng.normal(size=200)
# The posterior of a linear regression with prior N(0, I) and noise .5, in closed form.
COVARIANCE = np.linalg.inv(np.eye(2) + X.T @ X / 0.25)
MEAN = COVARIANCE @ X.T @ Y / 0.25


@pytest.fixture(scope="module")
def regression():
    return follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((2, 1)),
        data=(X, Y),
        likelihood=follmer.likelihoods.Normal(0.5),
    )


@pytest.mark.parametrize("batch_size", [None, 50])
def test_chains_are_draws_of_a_posterior_known_in_closed_form(regression, key, batch_size):
    schedule = Schedule(4, 500, 6000, 10, batch_size, batch_size)
    found = run_ensemble(regression, schedule, key, progress=False)
    assert found.draws.shape == (4, 300, 2)
    assert not found.replaced
    assert not found.interrupted
    draws = found.draws.reshape(-1, 2).astype(float)
    sd = np.sqrt(np.diag(COVARIANCE))
    # 1200 draws, of which one in thirty counts: sd of a mean .16. Batches and steps bias the width.
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - MEAN) / sd, 4 * 0.16)
    ratio = draws.std(axis=0) / sd
    assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio


def test_rates_are_limited_by_what_batches_add_to_the_temperature(regression, key):
    x = jnp.asarray(np.tile(MEAN, (2, 1)), regression.dtype)
    schedule = Schedule(2, 1, 1, 1, 10, 10)
    found = ensembles._largest_rate(regression, schedule, x, key)
    residuals = X * (Y - X @ MEAN)[:, None] / 0.25
    # Batches of 10 are drawn from 200 rows, so a gradient is 20 times a sum of 10. Eight of them,
    # along two coordinates, tell the variance to a third.
    variance = 20.0**2 * 10 * residuals.var(axis=0).mean()
    ratio = found * variance / (2 * ensembles._FRICTION * ensembles._HEAT)
    assert np.all((ratio > 0.4) & (ratio < 2.5)), ratio


def test_an_interrupted_run_goes_on_bit_for_bit(regression, key, monkeypatch):
    monkeypatch.setattr(ensembles, "_SECONDS_BETWEEN_FILES", 0.0)
    schedule = Schedule(2, 50, 1000, 10)
    saved = []
    whole = run_ensemble(regression, schedule, key, save=saved.append, progress=False)
    # After the descents, after each of five calls, and at the end.
    assert len(saved) == 7
    resumed = run_ensemble(regression, schedule, key, load=lambda: saved[2], progress=False)
    np.testing.assert_array_equal(whole.draws, resumed.draws)


def test_chains_that_have_not_settled_are_prolonged_once(regression, key, monkeypatch):
    monkeypatch.setattr(ensembles, "_SECONDS_BETWEEN_FILES", 0.0)
    asked, saved = [], []

    def settled(states):
        asked.append(states.shape)
        return False

    def run(**options):
        schedule = Schedule(2, 50, 1000, 10)
        return run_ensemble(regression, schedule, key, settled=settled, progress=False, **options)

    whole = run(save=saved.append)
    assert asked == [(2, 50, 2)]
    assert whole.schedule.num_steps == 2000
    assert whole.draws.shape == (2, 100, 2)
    # Interrupted before it was asked, when it had just been asked, and after.
    for place in (3, 5, 8):
        resumed = run(load=lambda at=place: saved[at])
        np.testing.assert_array_equal(whole.draws, resumed.draws)
    assert len(asked) == 3


def test_chains_end_when_the_time_is_up(regression, key):
    found = run_ensemble(
        regression, Schedule(2, 50, 1000, 10), key, progress=False, stop=lambda: True
    )
    # One call of 20 states, of which the burn-in takes half; and where the chains stand.
    assert found.interrupted
    assert found.draws.shape == (2, 11, 2)


def test_gradients_are_counted_by_the_rows_they_look_at():
    assert Schedule(2, 100, 50, 1).gradients(1000) == 2 * (100 + 2 * 50)
    assert Schedule(2, 100, 50, 1, 10, 20).gradients(1000) == int(2 * (100 * 0.02 + 50 * 0.01))
    assert Schedule(2, 100, 50, 1, None, 20).gradients(1000) == 2 * (2 + 2 * 50)


def test_steps_shorten_along_the_burn_in(regression):
    at = [0.0, 0.5, 1.0, 1.7]
    found = [float(ensembles._dynamics(regression, b)[1]) for b in at]
    np.testing.assert_allclose(found, [5.0, np.sqrt(5.0 * 0.02), 0.02, 0.02], rtol=1e-6)


def _wide_kernel(x, z):
    """The covariance of a network with one hidden layer of very many ReLUs (Cho & Saul 2009)."""
    inner, scale = np.outer(x, z) + 1.0, np.sqrt(np.outer(x**2 + 1.0, z**2 + 1.0))
    angle = np.arccos(np.clip(inner / scale, -1.0, 1.0))
    return 1.0 + (scale * np.sin(angle) + (np.pi - angle) * inner) / (2.0 * np.pi)


def test_a_wide_network_is_the_gaussian_process_that_it_tends_to(key):
    rng, sd, width = np.random.default_rng(0), 0.3, 100
    x = np.linspace(-1.0, 1.0, 12)
    y = np.sign(x) + sd * rng.normal(size=12)
    test = np.array([-3.0, -1.5, 0.0, 1.5, 3.0])
    target = follmer.from_network(
        lambda w, x: jnp.maximum(x @ w[0] + w[1], 0.0) @ w[2] + w[3],
        params=[jnp.zeros(shape) for shape in ((1, width), (width,), (width, 1), (1,))],
        data=(x[:, None], y),
        likelihood=follmer.likelihoods.Normal(sd),
        prior=follmer.priors.FanIn("in_out"),
    )
    found = run_ensemble(target, Schedule(8, 500, 4000, 20), key, progress=False).draws
    apply = jax.vmap(lambda w: target.predictive.outputs(target.parameters(w), test[:, None]))
    by_chain = np.asarray(apply(found.reshape(-1, target.dim)), float).reshape(*found.shape[:2], 5)
    cross = _wide_kernel(test, x)
    solved = np.linalg.solve(_wide_kernel(x, x) + sd**2 * np.eye(12), cross.T)
    mean, variance = y @ solved, np.diag(_wide_kernel(test, test) - cross @ solved)
    # Means of chains differ by the error of each; a width of 100 is worth a tenth of an sd.
    error = by_chain.mean(1).std(0, ddof=1) / np.sqrt(8)
    away = np.abs(by_chain.mean((0, 1)) - mean)
    np.testing.assert_array_less(away, 4 * error + 0.1 * np.sqrt(variance))
    # Of y, noise included: where the data settle it (x = 0), steps that are not corrected widen the
    # output's own sd of .12 a little; beyond the data it is 1.
    predictive = np.sqrt(by_chain.var((0, 1)) + sd**2)
    np.testing.assert_allclose(predictive, np.sqrt(variance + sd**2), rtol=0.1)


def test_ctrl_c_keeps_what_the_chains_have(regression, key, monkeypatch):
    calls = []
    own = ensembles._continued

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(ensembles, "_continued", interrupted)
    found = run_ensemble(regression, Schedule(2, 50, 1000, 10), key, progress=False)
    assert found.interrupted
    # Two calls of 20 states and the last, less the first half.
    assert found.draws.shape == (2, 21, 2)


def test_members_that_are_not_finite_at_their_start_are_replaced_and_counted(key):
    def log_density(x):
        return jnp.where(jnp.abs(x[0]) < 0.1, -0.5 * jnp.sum(x**2), jnp.nan)

    target = follmer.Target(log_density, like=jnp.zeros(2))
    members = descents.starts(target, 16, key)
    assert members.replaced > 0
    assert np.all(np.abs(members.x[:, 0]) < 0.1)


def test_no_finite_start_at_all_is_an_error(key):
    target = follmer.Target(lambda x: jnp.sum(x) * jnp.nan, like=jnp.zeros(2))
    with pytest.raises(NonFiniteError, match="4 of 4 members' starts"):
        descents.starts(target, 4, key)


def test_starts_of_matrices_are_as_wide_as_glorot_says():
    like = {"w": jnp.zeros((30, 20)), "b": jnp.zeros(20)}
    target = follmer.Target(lambda p: -jnp.sum(p["w"] ** 2), like=like)
    widths = descents.start_widths(target)
    np.testing.assert_allclose(widths[:20], 0.1)  # leaves of a dict go by name: b, w
    np.testing.assert_allclose(widths[20:], (2 / 50) ** 0.5)


def test_a_gradient_that_is_not_finite_moves_nothing(key):
    def log_density(x):
        return jnp.sum(jnp.where(x > 5.0, jnp.nan, -((x - 1.0) ** 2)))

    target = follmer.Target(log_density, like=jnp.zeros(1))
    starts = jnp.array([[9.0], [0.0]])
    ends = descents.descend(
        target, starts, key, batch_size=None, num_iterations=600, learning_rate=0.01
    )
    np.testing.assert_allclose(ends, [[9.0], [1.0]], atol=1e-2)


def test_cold_chains_by_batches_are_narrower_and_start_from_given_points(regression, key):
    points = jnp.zeros((4, regression.dim))
    warm, cold = (
        run_ensemble(
            regression,
            Schedule(4, 0, 4000, 4, 20, temperature=temperature),
            key,
            points=points,
            progress=False,
        )
        for temperature in (1.0, 0.04)
    )
    np.testing.assert_array_equal(cold.points, points)
    ratio = np.median(cold.draws.std(axis=1) / warm.draws.std(axis=1))
    # √.04, but for the batches' noise, which both have; of four chains' sds.
    assert 0.15 < ratio < 0.6


def test_values_of_many_rows_are_told_by_some_of_them(monkeypatch, key):
    rng = np.random.default_rng(0)
    target = follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((2, 1)),
        data=(rng.normal(size=(4000, 2)), rng.normal(size=4000)),
        likelihood=follmer.likelihoods.Normal(1.0),
    )
    x = jnp.asarray(rng.normal(size=(3, 2)), target.dtype)
    exact = ensembles._values(target, x, key)
    monkeypatch.setattr(ensembles, "_ROWS_OF_VALUES", 2000)
    by_some = ensembles._values(target, x, key)
    assert not np.array_equal(exact, by_some)
    # A row's log likelihood has an sd below 4: 4000 rows told by 2000 err by 4 · 4000/√2000.
    np.testing.assert_allclose(by_some, exact, atol=3 * 4 * 4000 / 2000**0.5)


def test_chains_without_a_finite_end_are_an_error(key):
    # Finite where members start and descend, but for a cliff that every chain falls off.
    target = follmer.Target(lambda x: -jnp.sum(x**2), like=jnp.zeros(3))
    schedule = Schedule(2, 10, 40, 1)
    run = ensembles._descended(target, schedule, jax.random.key(0), None)
    lost = run._replace(kept=[np.full((40, 2, 3), np.nan, np.float32)])
    with pytest.raises(NonFiniteError, match="all 2 chains"):
        ensembles._ensemble(target, schedule, lost, jax.random.key(0), False)
