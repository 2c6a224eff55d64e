"""What decides how an ensemble is run, and when."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer import InputError, NonFiniteError
from follmer.plans import ensemble as module
from follmer.plans.ensemble import schedule_for
from follmer.plans.fresh_draws import sampler_of
from follmer.plans.rungs import ladder
from follmer.plans.survey import Survey
from follmer.posterior.along_chains import ChainFlow
from follmer.tools.modules import replaced

X, Y = np.zeros((40, 2)), np.arange(40.0) % 3


def net(depth=1):
    return eqx.nn.MLP(2, 1, width_size=4, depth=depth, key=jax.random.key(0))


def network(depth=1):
    return follmer.from_network(net(depth), data=(X, Y), likelihood="normal")


def rungs(target, precondition="auto", **options):
    return [name for name, _ in ladder(precondition, Survey(target, jax.random.key(0)), options)]


@pytest.mark.parametrize(
    ("cost", "rows", "batches", "descent", "steps", "thinning"),
    [
        (1e5, 500, (None, None), 3000, 5000, 25),  # cheap: all data
        (1.4e7, 500, (None, None), 3000, 5000, 25),  # 1.7e12 operations still fit
        (1.8e7, 500, (500, None), 4629, 4000, 20),  # shorter chains, descents by batches
        (3.6e7, 9000, (512, None), 30_000, 2000, 10),  # the shortest chains by all data
        (4e7, 9000, (512, 512), 30_000, 15_000, 25),  # chains by batches, too
        (1e8, 40_000, (512, 512), 30_000, 15_000, 25),  # the most steps of batches
        (1e12, 60_000, (128, 128), 6000, 5000, 25),  # large: small batches, the fewest passes
    ],
)
def test_steps_and_batches_by_cost(cost, rows, batches, descent, steps, thinning):
    target = replaced(network(), gradient_cost=cost, num_data=rows)
    found = schedule_for(target)
    assert (found.descent_batch, found.batch_size) == batches
    assert (found.num_steps, found.thinning) == (steps, thinning)
    assert found.num_descent_steps == pytest.approx(descent, abs=1)


def test_a_batch_that_was_asked_for_is_used():
    found = schedule_for(network(), batch_size=10)
    assert (found.descent_batch, found.batch_size) == (10, 10)


def test_chains_may_be_shortened_and_prolonged():
    default = schedule_for(network())
    for factor in (0.1, 2.0):
        changed = default.of_length(int(factor * default.num_steps))
        assert changed.num_steps == factor * default.num_steps
        assert changed.num_descent_steps == factor * default.num_descent_steps
    one = default.of_length(1)
    assert (one.num_steps, one.num_descent_steps, one.num_kept) == (1, 1, 1)


def test_iterations_are_those_of_chains_where_an_ensemble_was_asked_for():
    assert rungs(network(), "ensemble", num_iterations=40) == ["ensemble"]
    # Left open, they are those of training.
    assert "ensemble" not in rungs(network(), num_iterations=40)
    short = follmer.fit(
        network(),
        key=jax.random.key(0),
        precondition="ensemble",
        num_iterations=40,
        check=False,
        audit=False,
        progress=False,
    )
    # Every 25th state, and one half of what is kept.
    assert short.sampler.draws.shape[:2] == (12, 1)


def of_function(change, likelihood):
    """A network of 8 tanh units whose parameters and outputs are changed."""

    def apply(params, x):
        hidden = jnp.tanh(x @ params["in"])
        return change(params, hidden @ params["out"])

    like = {"in": jnp.zeros((2, 8)), "out": jnp.zeros((8, 1))}
    return follmer.from_network(apply, params=like, data=(X, Y), likelihood=likelihood)


def short_fit(target):
    return follmer.fit(
        target,
        key=jax.random.key(0),
        precondition="ensemble",
        num_iterations=500,
        progress=False,
    )


def test_starts_that_are_not_finite_are_replaced_and_counted():
    def half(params, outputs):
        return outputs + jnp.where(params["in"][0, 0] > 0, jnp.nan, 0.0)

    found = short_fit(of_function(half, follmer.likelihoods.Normal(0.5)))
    assert any("starts were not finite and were replaced" in note for note in found.notes)
    assert np.all(found.sampler.draws[:, :, 0] <= 0)
    assert np.isfinite(found.predict(X, key=jax.random.key(1)).mean).all()


def test_a_density_that_is_nowhere_finite_is_refused():
    target = of_function(lambda params, outputs: outputs + jnp.nan, "normal")
    with pytest.raises(NonFiniteError, match="not finite at 128 of 128"):
        short_fit(target)


def test_a_network_whose_output_is_dead_is_not_good_for_predictions():
    found = short_fit(of_function(lambda params, outputs: 0.0 * outputs, "normal"))
    assert found.verdict is follmer.Verdict.DO_NOT_USE
    assert "dead output" in found.judgement.advice


def test_networks_with_hidden_layers_take_the_ensemble():
    assert rungs(network()) == ["ensemble"]
    assert rungs(network(), batch_size=10) == ["ensemble"]
    assert rungs(network(), drift="mlp") == ["flow"]
    linear = follmer.from_network(
        eqx.nn.Linear(2, 1, key=jax.random.key(0)), data=(X, Y), likelihood="normal"
    )
    assert rungs(linear) == ["mixture", "flow", "chains"]
    assert rungs(linear, "ensemble") == ["ensemble"]


def test_large_networks_pass_over_all_data_many_times_and_have_fewer_members():
    small, large = (
        replaced(network(), gradient_cost=cost, num_data=60_000) for cost in (1e8, 2e11)
    )
    assert schedule_for(small).num_members == 12
    schedule = schedule_for(large)
    assert (schedule.num_members, schedule.batch_size) == (8, 128)
    assert schedule.num_descent_steps * 128 / 60_000 == pytest.approx(12.8, abs=0.01)
    assert schedule.descent_rate < schedule_for(small).descent_rate


def test_an_ensemble_cannot_honour_options_of_training():
    with pytest.raises(InputError, match="cannot honour num_paths"):
        rungs(network(), "ensemble", num_paths=3)


def test_more_stored_bytes_than_memory_are_refused_before_the_run(monkeypatch):
    monkeypatch.setattr(module, "_memory", lambda: 10_000)
    with pytest.raises(InputError, match="would store"):
        module.ensemble(Survey(network(), jax.random.key(0), progress=False), jax.random.key(1))


def test_many_bytes_are_told_beforehand(capsys):
    target = replaced(network(), gradient_cost=1e3)
    schedule = schedule_for(target)._replace(num_steps=10**9)
    monkey = pytest.MonkeyPatch()
    monkey.setattr(module, "_memory", lambda: None)
    (words,) = module._memory_notes(target, schedule, progress=True)
    assert "GiB" in words
    assert words in capsys.readouterr().err
    module._memory_notes(target, schedule, progress=False)
    assert capsys.readouterr().err == ""
    monkey.undo()


def test_no_flow_is_laid_along_chains_that_are_too_short():
    found = sampler_of(network(), np.zeros((4, 5, 18)), "ensemble", jax.random.key(0))
    assert not isinstance(found, ChainFlow)


def test_a_flow_is_laid_along_chains_only_where_it_predicts_as_well():
    x = np.random.default_rng(0).normal(size=(50, 1))
    target = follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((1, 1)),
        data=(x, 0.7 * x[:, 0]),
        likelihood=follmer.likelihoods.Normal(0.1),
    )
    rng = np.random.default_rng(1)
    smooth = 0.7 + 0.01 * rng.normal(size=(4, 50, 1))
    flow = sampler_of(target, smooth, "ensemble", jax.random.key(0))
    assert isinstance(flow, ChainFlow)
    np.testing.assert_allclose(flow.draws, smooth, rtol=1e-5)
    # Chains that jump between two signs of a symmetric model: between them there is nothing.
    even = follmer.from_network(
        lambda w, x: jnp.abs(w[0, 0]) * x,
        params=jnp.zeros((1, 1)),
        data=(x, 0.7 * x[:, 0]),
        likelihood=follmer.likelihoods.Normal(0.1),
    )
    jumping = smooth * np.where(np.arange(50) % 2, 1.0, -1.0)[:, None]
    assert not isinstance(sampler_of(even, jumping, "ensemble", jax.random.key(0)), ChainFlow)


def test_a_chain_that_predicts_worse_has_a_smaller_share():
    x = np.random.default_rng(0).normal(size=(50, 1))
    target = follmer.from_network(
        lambda w, x: x @ w,
        params=jnp.zeros((1, 1)),
        data=(x, 0.7 * x[:, 0]),
        likelihood=follmer.likelihoods.Normal(0.1),
    )
    places = np.array([0.7, 0.7, 0.7, 1.2])[:, None, None]
    chains = places + 0.01 * np.random.default_rng(1).normal(size=(4, 50, 1))
    found = sampler_of(target, chains, "ensemble", jax.random.key(0))
    np.testing.assert_allclose(found.shares.sum(), 1.0, rtol=1e-5)
    assert found.shares[3] < 0.1 < 0.25 < found.shares[:3].min()
    drawn, _ = found.sample(2000, jax.random.key(1), None, progress=False)
    # Nearly all draws stand at .7 or at 1.2, with a binomial number of the latter.
    share, wide = np.mean(np.asarray(drawn) > 0.95), found.shares[3]
    assert abs(share - wide) < 4 * np.sqrt(wide * (1 - wide) / 2000)
