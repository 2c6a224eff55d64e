"""The default fit of a network: its verdict, its predictions, its files, and going on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer import InputError
from follmer.mcmc import ensembles
from follmer.posterior.along_chains import ChainFlow, along_chains
from follmer.posterior.posterior import Posterior

rng = np.random.default_rng(0)
X = np.linspace(-1, 1, 30)[:, None]
Y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=30)


def network():
    net = eqx.nn.MLP(1, 1, width_size=4, depth=1, activation=jnp.tanh, key=jax.random.key(1))
    noise = follmer.likelihoods.Normal(0.3)
    return follmer.from_network(net, data=(X, Y), likelihood=noise)


@pytest.fixture(scope="module")
def target():
    return network()


@pytest.fixture(scope="module")
def posterior(target):
    return follmer.fit(target, key=jax.random.key(0), progress=False)


def test_a_network_is_good_for_predictions_by_default(posterior):
    (attempt,) = posterior.plan
    assert (attempt.rung, attempt.verdict) == ("ensemble", "good for predictions")
    assert posterior.gradient_evaluations > 12 * 3000
    words = posterior.summary(key=jax.random.key(1))
    assert "Verdict: good for predictions" in words
    assert "LOO" in words
    # Predictions, and no single weights.
    assert "layers" not in words


def test_it_predicts_the_curve(posterior):
    new = posterior.predict(X, y=Y, key=jax.random.key(1), num_samples=1000)
    truth = np.sin(2 * X[:, 0])
    # Thirty rows of noise .3, 13 parameters: errors of the mean below .3 √(13/30), about.
    assert np.sqrt(np.mean((np.asarray(new.mean) - truth) ** 2)) < 0.2
    low, _, high = np.asarray(new.quantiles)
    # 27 of 30 expected; 23 is below it by 2.4 standard deviations.
    assert np.sum((low <= Y) & (high >= Y)) >= 23


def test_its_draws_are_trees_of_weights_and_its_chains_are_exported(posterior):
    draws = posterior.sample(7, key=jax.random.key(1))
    assert draws.layers[0].weight.shape == (7, 4, 1)
    chains, length = posterior.sampler.draws.shape[:2]
    assert chains == 12
    # Chosen by the chains' shares they are one chain, all of whose draws count equally.
    chosen = posterior.to_datatree(key=jax.random.key(1))
    assert dict(chosen["posterior"].sizes)["chain"] == 1
    assert dict(chosen["posterior"].sizes)["draw"] == chains * length
    assert set(chosen["sample_stats"].data_vars) == {"lp"}
    # As they come they have a log density at every draw, and weights that are the shares.
    tree = posterior.to_datatree(key=jax.random.key(1), resampled=False)
    assert dict(tree["posterior"].sizes)["chain"] == chains
    assert set(tree["sample_stats"].data_vars) == {"lp", "log_weight"}
    weights = np.exp(tree["sample_stats"]["log_weight"].values)
    np.testing.assert_allclose(weights.mean(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(weights, np.broadcast_to(weights[:, :1], weights.shape))


def test_it_is_saved_and_loaded_with_its_verdict(posterior, target, tmp_path):
    posterior.save(tmp_path / "network.follmer")
    loaded = follmer.load(tmp_path / "network.follmer", target)
    key = jax.random.key(2)
    assert loaded.summary(key=key) == posterior.summary(key=key)
    for one, other in zip(
        jax.tree.leaves(posterior.sample(5, key=key)),
        jax.tree.leaves(loaded.sample(5, key=key)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_flow_along_chains_draws_afresh_and_knows_its_weights(target, posterior, tmp_path):
    chains = np.asarray(posterior.sampler.draws)
    flow = along_chains(target, chains, 10, 0.5, 0.01)
    found = Posterior(target, flow, progress=False)
    key = jax.random.key(3)
    x, _ = found.flat_sample(300, key=key)
    assert len(np.unique(np.asarray(x)[:, 0])) == 300
    weights = np.asarray(found.log_weights(300, key=key), float)
    expected = [float(target.log_density(one) - flow.mixture.log_density(one)) for one in x[:5]]
    np.testing.assert_allclose(weights[:5], expected, rtol=1e-4, atol=1e-3)
    found.save(tmp_path / "flow.follmer")
    loaded = follmer.load(tmp_path / "flow.follmer", target)
    assert isinstance(loaded.sampler, ChainFlow)
    np.testing.assert_array_equal(
        loaded.flat_sample(9, key=key)[0], found.flat_sample(9, key=key)[0]
    )
    with pytest.raises(InputError, match="num_steps"):
        found.sample(3, key=key, num_steps=2)


def test_a_fit_is_resumed_where_it_was_interrupted(target, tmp_path, monkeypatch):
    monkeypatch.setattr("follmer.plans.ensemble._STEPS", 1000)
    monkeypatch.setattr("follmer.plans.ensemble._DESCENT_STEPS", 100)
    monkeypatch.setattr("follmer.plans.ensemble._FEWEST_STEPS", 100)
    plain = {"key": jax.random.key(0), "progress": False, "audit": False}
    whole = follmer.fit(target, **plain)
    own, calls = ensembles._continued, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(ensembles, "_continued", interrupted)
    short = follmer.fit(target, **plain, checkpoint=tmp_path)
    assert any("interrupted" in note for note in short.notes)
    with pytest.raises(InputError, match="already holds a run"):
        follmer.fit(target, **plain, checkpoint=tmp_path)
    monkeypatch.setattr(ensembles, "_continued", own)
    resumed = follmer.fit(target, **plain, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.sampler.draws, whole.sampler.draws)


def test_batches_are_said_to_be_approximate(target, monkeypatch):
    monkeypatch.setattr("follmer.plans.ensemble._MOST_STEPS", 600)
    monkeypatch.setattr("follmer.plans.ensemble._FEWEST_STEPS", 600)
    found = follmer.fit(target, key=jax.random.key(0), batch_size=10, progress=False)
    assert any("approximate" in note for note in found.notes)
    assert np.isfinite(found.sampler.draws).all()


@pytest.mark.slow
def test_predictions_are_those_of_nuts(target, posterior):
    exact = follmer.nuts(target, key=jax.random.key(5), num_chains=4, progress=False)
    new = np.linspace(-1, 1, 9)[:, None]
    found, wanted = (
        one.predict(new, key=jax.random.key(6), num_samples=1000) for one in (posterior, exact)
    )
    # Means of a thousand correlated draws, and steps that are not corrected.
    assert np.max(np.abs(np.asarray(found.mean) - np.asarray(wanted.mean))) < 0.06
    np.testing.assert_allclose(found.sd, wanted.sd, rtol=0.1)
