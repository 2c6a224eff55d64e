"""Draws beside those of Markov chains: what is too narrow, left out, or blurred by rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import Posterior, Target, Verdict, mc_sfs
from follmer.drifts import GaussianMixture
from follmer.judging import Audit, audit, judge
from follmer.judging.audit import audited, precision_note, rounding_noise
from follmer.nsfs import NSFS
from follmer.plans import Survey
from follmer.posterior.samplers import Flow, MixtureFlow
from follmer.targets.affine import diagonal


def far_from_origin(offset):
    """A normal density, written so that squares of a large offset must cancel."""
    return Target(
        lambda x: -0.5 * jnp.sum((x + offset) ** 2 - 2 * offset * x - offset**2),
        like=jnp.zeros(3, jnp.float32),
    )


@pytest.fixture
def draws(key):
    return np.asarray(jax.random.normal(key, (64, 3), jnp.float32))


def test_rounding_is_measured(draws, key):
    # Near 1e6 floats are 2⁻⁴ apart; a handful of such roundings are made.
    noise = rounding_noise(far_from_origin(1e3), draws, key)
    assert 2.0**-4 / np.sqrt(12) < np.sqrt(np.mean(noise**2)) < 8 * 2.0**-4


def test_a_blurred_density_is_told(draws, key):
    assert "jax_enable_x64" in precision_note(far_from_origin(1e4), draws, key)


def test_a_sound_density_is_not(draws, key):
    assert precision_note(far_from_origin(0.0), draws, key) is None


@pytest.mark.usefixtures("x64")
def test_double_precision_is_never_blamed(key):
    target = Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(3))
    assert precision_note(target, np.asarray(jax.random.normal(key, (8, 3))), key) is None


DIM = 5


def normal():
    return Target(
        lambda x: jnp.sum(jax.scipy.stats.norm.logpdf(x)), like=jnp.zeros(DIM, jnp.float32)
    )


def flow(target, means, widths, shares=None, affine=None):
    """Gaussians of one width each, with coordinates of the flow's own where there is an affine."""
    means = np.asarray(means, float).reshape(-1, target.dim)
    shares = np.full(len(means), 1 / len(means)) if shares is None else np.asarray(shares)
    factors = np.asarray(widths)[..., None, None] * np.broadcast_to(
        np.eye(target.dim), (len(means), target.dim, target.dim)
    )
    if affine is not None:
        means, factors = affine.inverse_rows(means), factors / np.asarray(affine.scale)[:, None]
    mixture = GaussianMixture(shares, means, factors, target.dtype)
    return Posterior(target, MixtureFlow(target.whitened(affine), mixture), progress=False)


def judged(posterior, key):
    return judge(posterior.diagnostics(key=key), posterior.audit)


@pytest.fixture(scope="module")
def population_of_normal():
    return Survey(normal(), jax.random.key(1)).population


@pytest.mark.parametrize("given", [False, True], ids=["own chains", "population"])
def test_a_good_flow_is_trustworthy(given, population_of_normal, key):
    posterior = audited(
        flow(normal(), np.zeros(DIM), 1.0),
        key=key,
        population=population_of_normal if given else None,
    )
    assert judged(posterior, key).verdict is Verdict.TRUSTWORTHY
    assert posterior.audit.missed_modes == 0
    # All weights are 1, wherever the paths end.
    np.testing.assert_allclose(posterior.audit.eubo, 0.0, atol=1e-4)
    assert posterior.audit.rhat < 1.1


@pytest.mark.parametrize("given", [False, True], ids=["own chains", "population"])
def test_a_narrow_flow_is_caught_by_the_upper_bound(given, population_of_normal, key):
    posterior = audited(
        flow(normal(), np.zeros(DIM), 0.5),
        key=key,
        population=population_of_normal if given else None,
    )
    # KL(p‖q) of N(0, 1) from N(0, ¼), in each of the coordinates.
    exact = DIM * (0.5 * (4 - 1) - np.log(2))
    found = posterior.diagnostics(key=key)
    assert found.eubo == posterior.audit.eubo
    # Ends are draws of chains, which are worth fewer than they are.
    noise = posterior.audit.eubo_se * np.sqrt(audit._NUM_ENDS / population_of_normal.effective)
    assert abs(found.eubo - exact) < 4 * noise
    assert judged(posterior, key).verdict is Verdict.DO_NOT_USE
    # However good its weights may look: they know of nothing that no draw reaches.
    looks_good = found._replace(khat=0.3, ess_fraction=0.9)
    assert judge(looks_good).verdict is Verdict.USE_WEIGHTS
    assert judge(looks_good, posterior.audit).verdict is Verdict.DO_NOT_USE


def test_a_slightly_narrow_flow_is_for_weights(key):
    posterior = audited(flow(normal(), np.zeros(DIM), 0.8), key=key)
    assert judged(posterior, key).verdict is Verdict.USE_WEIGHTS


def test_a_shifted_flow_is_mended_by_its_weights_and_no_shift_is_seen(key):
    """Weighted means are compared: where the weights are sound, they are where the chains are."""
    posterior = audited(flow(normal(), np.full(DIM, 0.3), 1.0), key=key)
    assert posterior.audit.mean_shift < 4 * posterior.audit.mean_shift_noise
    assert judged(posterior, key).verdict is Verdict.USE_WEIGHTS


def two_normals(log_shares):
    def log_density(x):
        logs = log_shares - 0.5 * (x[0] - jnp.array([8.0, -8.0])) ** 2
        return jax.nn.logsumexp(logs) - 0.5 * jnp.log(2 * jnp.pi)

    return Target(log_density, like=jnp.zeros(1, jnp.float32))


SHARES = np.array([0.75, 0.25])


@pytest.fixture(scope="module")
def population_of_two():
    return Survey(two_normals(jnp.log(SHARES)), jax.random.key(1)).population


@pytest.mark.parametrize("whitening", [None, diagonal([8.0], [2.0], jnp.float32)])
@pytest.mark.parametrize(
    ("centres", "shares", "missed"),
    [([8.0], [1.0], 1), ([-8.0], [1.0], 1), ([8.0, -8.0], SHARES, 0)],
    ids=["right", "left", "both"],
)
def test_a_mode_that_no_draw_visits_is_missed(
    centres, shares, missed, whitening, population_of_two, key
):
    posterior = flow(two_normals(jnp.log(SHARES)), centres, 1.0, shares, whitening)
    posterior = audited(posterior, key=key, population=population_of_two)
    assert posterior.audit.missed_modes == missed
    verdict = Verdict.DO_NOT_USE if missed else Verdict.TRUSTWORTHY
    assert judged(posterior, key).verdict is verdict


def test_chains_from_the_draws_themselves_do_not_see_a_far_mode(key):
    """Which is why a survey's population is what draws are compared with."""
    posterior = audited(flow(two_normals(jnp.log(SHARES)), [8.0], 1.0), key=key)
    assert posterior.audit.missed_modes == 0


def test_a_mode_without_mass_is_not_missed(key):
    target = two_normals(jnp.array([0.0, -10.0]))
    population = Survey(target, jax.random.key(1)).population
    posterior = audited(flow(target, [8.0], 1.0), key=key, population=population)
    assert posterior.audit.missed_modes == 0
    assert judged(posterior, key).verdict is Verdict.TRUSTWORTHY


def test_a_mode_of_the_wrong_mass_is_no_missed_one_and_weights_mend_it(population_of_two, key):
    posterior = flow(two_normals(jnp.log(SHARES)), [8.0, -8.0], 1.0, [0.5, 0.5])
    posterior = audited(posterior, key=key, population=population_of_two)
    assert posterior.audit.missed_modes == 0
    assert judged(posterior, key).verdict is Verdict.USE_WEIGHTS


def test_a_target_that_the_user_has_whitened_is_audited_in_its_own_coordinates(key):
    base = Target(
        lambda x: jnp.sum(jax.scipy.stats.norm.logpdf(x, 50.0, 3.0)), like=jnp.zeros(2, jnp.float32)
    )
    target = base.whitened(diagonal([50.0, 50.0], [3.0, 3.0], jnp.float32))
    process = NSFS(target, drift="zero", num_steps=2).process
    posterior = Posterior(target, Flow(process, process.parameters(key)), progress=False)
    population = Survey(target, jax.random.key(1)).population
    posterior = audited(posterior, key=key, population=population)
    assert judged(posterior, key).verdict is Verdict.TRUSTWORTHY


def test_without_finite_weights_there_is_no_audit(key):
    nowhere = Target(lambda x: jnp.where(jnp.all(x > 0), 0.0, -jnp.inf), jnp.zeros(2, jnp.float32))
    posterior = flow(nowhere, np.zeros(2), 1.0)
    assert audited(posterior, key=key).audit is None


def test_where_chains_cost_too_much_there_is_no_audit(key, monkeypatch):
    monkeypatch.setattr(audit, "_BUDGET", 1.0)
    assert audited(flow(normal(), np.zeros(DIM), 1.0), key=key).audit is None


def test_a_sampler_without_an_upper_bound_has_no_audit(key):
    posterior = mc_sfs(normal(), num_steps=2, num_samples=2)
    assert audited(posterior, key=key) is posterior


def test_an_audit_adds_to_the_posterior_and_changes_nothing_else(key):
    posterior = flow(normal(), np.zeros(DIM), 1.0).with_notes("as before")
    after = audited(posterior, key=key)
    assert isinstance(after.audit, Audit)
    assert posterior.audit is None
    assert (after.sampler, after.target) == (posterior.sampler, posterior.target)
    assert after.notes == ("as before",)
    np.testing.assert_array_equal(after.sample(4, key=key), posterior.sample(4, key=key))


def test_a_blurred_density_is_noted_by_an_audit(key):
    posterior = audited(flow(far_from_origin(1e4), np.zeros(3), 1.0), key=key)
    assert any("jax_enable_x64" in note for note in posterior.notes)
