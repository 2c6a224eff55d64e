"""Posteriors of globals and locals: all, chosen and new locals; weights; files."""

import contextlib
import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer import Posterior
from follmer.judging import Audit, LocalAudit, audit
from follmer.judging.audit import audited
from follmer.posterior import structured as structured_sampling
from follmer.posterior.structured import StructuredFlow
from follmer.tools import progress

# Ten groups of two that differ by more than the noise in them.
_OWN, _NOISE = (np.random.default_rng(0).normal(size=(10, size)) for size in (1, 2))
DATA = (1.0 + 2.0 * _OWN + _NOISE).astype(np.float32)


def hierarchy(data=DATA):
    return follmer.StructuredTarget(
        log_prior_global=lambda phi: norm.logpdf(phi["mean"]) + norm.logpdf(phi["spread"]),
        log_prior_local=lambda theta, phi: norm.logpdf(theta, phi["mean"], phi["spread"]),
        log_likelihood=lambda theta, phi, x: jnp.sum(norm.logpdf(x, theta, 1.0)),
        data=data,
        like_global={"mean": jnp.zeros(()), "spread": jnp.zeros(())},
        like_local=jnp.zeros(()),
        constraints={"global": {"spread": constraints.positive}},
    )


@pytest.fixture(scope="module")
def posterior():
    with pytest.MonkeyPatch.context() as patch:
        # Bars that are shown appear at once, which a test below looks for.
        patch.setattr(progress, "_DELAY", 0.0)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found = follmer.fit(
                hierarchy(), key=jax.random.key(0), num_iterations=100, audit=False, progress=False
            )
    assert said.getvalue() == ""
    return found


def test_draws_are_globals_and_one_local_per_data_point(posterior, key):
    draws = posterior.sample(5, key=key)
    assert draws["global"]["mean"].shape == (5,)
    assert draws["local"].shape == (5, 10)
    assert np.all(draws["global"]["spread"] > 0)


def test_chosen_locals_and_globals_are_those_of_the_whole_sample(posterior, key):
    draws = posterior.sample(5, key=key)
    chosen = posterior.sample_local(5, key=key, rows=[7, 2])
    np.testing.assert_allclose(chosen, draws["local"][:, [7, 2]], rtol=1e-5, atol=1e-6)
    shared = posterior.sample_global(5, key=key)
    np.testing.assert_allclose(shared["mean"], draws["global"]["mean"], rtol=1e-5, atol=1e-6)


def test_chunks_do_not_change_draws_or_weights(posterior, key, monkeypatch):
    whole = posterior.weighted_sample(5, key=key)
    monkeypatch.setattr(structured_sampling, "_ROWS_AT_ONCE", 4)
    parts = posterior.weighted_sample(5, key=key)
    np.testing.assert_allclose(parts.position["local"], whole.position["local"], atol=1e-5)
    np.testing.assert_allclose(parts.log_weights, whole.log_weights, atol=1e-3)


def test_new_data_points_get_the_locals_of_equal_old_ones(posterior, key):
    num = 2000
    old = np.asarray(posterior.sample_local(num, key=key, rows=[3]))[:, 0]
    new = np.asarray(posterior.sample_local(num, key=key, data=DATA[3:4]))[:, 0]
    # Given the same globals the two are independent draws of one law.
    noise = np.hypot(old.std(), new.std()) / np.sqrt(num)
    assert abs(old.mean() - new.mean()) < 4 * noise
    assert abs(old.std() / new.std() - 1) < 4 / np.sqrt(num)


def test_weights_average_to_the_evidence(posterior, key):
    """p(X) by quadrature over the globals, the locals integrated out by hand."""
    mean, log_spread = np.meshgrid(np.linspace(-5, 6, 400), np.linspace(-9, 2.5, 400))
    spread = np.exp(log_spread)
    total = norm.logpdf(mean) + norm.logpdf(spread) + log_spread
    for x in DATA:
        average, gap = x.mean(), x[0] - x[1]
        total += norm.logpdf(average, mean, np.sqrt(spread**2 + 0.5))
        total += norm.logpdf(gap, 0.0, np.sqrt(2.0))
    cell = (11 / 399) * (11.5 / 399)
    exact = float(jax.scipy.special.logsumexp(jnp.asarray(total))) + np.log(cell)
    found = posterior.diagnostics(key=key, num_samples=2048)
    assert found.khat < 0.7
    assert abs(found.log_evidence - exact) < 4 * found.log_evidence_se


def test_without_progress_nothing_is_said_of_new_data_points(posterior, key, capfd, monkeypatch):
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    posterior.sample_local(5, key=key, data=DATA[:2])
    assert capfd.readouterr() == ("", "")
    spoken = Posterior(posterior.target, posterior.sampler)
    spoken.sample_local(5, key=key, data=DATA[:2])
    assert "locating locals" in capfd.readouterr().err


def test_a_saved_posterior_draws_the_same(posterior, key, tmp_path):
    posterior.save(tmp_path / "p.follmer")
    loaded = follmer.load(tmp_path / "p.follmer", hierarchy())
    before, after = posterior.sample(5, key=key), loaded.sample(5, key=key)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), before, after)


def test_summary_and_datatree_speak_of_globals_and_locals(posterior, key):
    assert "global.mean" in posterior.summary(key=key, num_samples=16)
    tree = posterior.to_datatree(key=key, num_samples=16)
    assert tree["posterior"]["local"].shape == (1, 16, 10)


def test_single_locals_are_judged_by_their_own_weights(posterior, key, monkeypatch):
    """Given the globals these locals are Gaussian: a guess of twice the variance has known ESS."""
    monkeypatch.setattr(audit, "_MAX_WITH_LOCALS", 5)
    process = posterior.sampler.process
    untrained = process.parameters(key)
    wide = eqx.tree_at(
        lambda one: one.log_scale, untrained, untrained.log_scale.at[-1].set(0.5 * np.log(2.0))
    )
    for parameters, exact in ((untrained, 1.0), (wide, np.sqrt(3.0) / 2.0)):
        flow = StructuredFlow(process, parameters)
        found = audited(Posterior(posterior.target, flow, progress=False), key=key).audit
        assert isinstance(found, LocalAudit)
        assert found.num_rows == 10
        # The worst of ten averages over 16 globals, each of 64 paths.
        assert abs(found.ess_fraction - exact) < 0.05


def test_many_locals_are_judged_one_by_one(posterior, key, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "_MAX_WITH_LOCALS", 5)
    judged = audited(posterior, key=key)
    assert isinstance(judged.audit, LocalAudit)
    assert "19 in 20 of 10 locals" in judged.summary(key=key, num_samples=64)
    judged.save(tmp_path / "p.follmer")
    loaded = follmer.load(tmp_path / "p.follmer", hierarchy())
    assert loaded.audit == judged.audit


def test_few_locals_are_compared_with_chains(posterior, key):
    """The bounds on either side of the evidence, whose value the weights know."""
    judged = audited(posterior, key=key)
    assert isinstance(judged.audit, Audit)
    found = judged.diagnostics(key=key, num_samples=2048)
    noise = np.hypot(found.log_evidence_se, judged.audit.eubo_se)
    assert found.elbo < found.log_evidence < judged.audit.eubo + 3 * noise
    assert judged.audit.mean_shift < 4 * judged.audit.mean_shift_noise


@pytest.mark.slow
def test_mini_batches_reach_the_same_posterior(posterior, key):
    by_batches = follmer.fit(
        hierarchy(), key=key, num_iterations=300, batch_size=3, audit=False, progress=False
    )
    found = by_batches.diagnostics(key=key, num_samples=1024)
    whole = posterior.diagnostics(key=key, num_samples=1024)
    noise = np.hypot(found.log_evidence_se, whole.log_evidence_se)
    assert abs(found.log_evidence - whole.log_evidence) < 4 * noise


@pytest.mark.slow
def test_the_papers_network_trains_with_its_statistics(key):
    posterior = follmer.fit(
        hierarchy(),
        key=key,
        precondition="identity",
        drift="batch_norm_mlp",
        drift_options={"width": 8, "depth": 1},
        step_rule="euler_maruyama",
        objective="det",
        batch_size=5,
        num_paths=8,
        num_steps=2,
        num_iterations=20,
        audit=False,
        progress=False,
    )
    assert np.isfinite(posterior.log_weights(5, key=key)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": [10]}, "0 … 9"),
        ({"rows": [0.5]}, "whole numbers"),
        ({"rows": [1], "data": DATA}, "both"),
        ({"data": np.zeros((3, 5), np.float32)}, "the new rows are"),
        ({"data": {"x": DATA}}, "the new rows are"),
    ],
)
def test_bad_choices_of_locals_are_refused(posterior, key, arguments, message):
    with pytest.raises(follmer.InputError, match=message):
        posterior.sample_local(3, key=key, **arguments)


def test_ordinary_posteriors_have_no_locals(key):
    target = follmer.Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(2))
    posterior = follmer.mc_sfs(target, num_steps=2, num_samples=2)
    with pytest.raises(follmer.InputError, match="StructuredTarget"):
        posterior.sample_global(3, key=key)


def test_preconditioners_and_drifts_without_structure_are_refused(key):
    with pytest.raises(follmer.InputError, match="structured"):
        follmer.fit(hierarchy(), key=key, precondition="explore")
    with pytest.raises(follmer.InputError, match="global and local"):
        follmer.fit(hierarchy(), key=key, drift="resnet")
