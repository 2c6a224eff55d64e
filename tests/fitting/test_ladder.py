"""The ladder: what is tried, kept and told, and that a resumed climb repeats nothing."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import NSFS, Target, Verdict, fit, load
from follmer.judging import Judgement
from follmer.posterior.samplers import Flow, MixtureFlow, StoredDraws
from follmer.tools import keys

QUICK = {"num_steps": 4, "num_paths": 8, "num_iterations": 20, "chunk_size": 10, "progress": False}


def banana(x):
    return -0.5 * x[0] ** 2 - 2 * (x[1] - x[0] ** 2) ** 2


@pytest.fixture
def gaussian():
    return Target(lambda x: jnp.sum(norm.logpdf(x, 2.0, 0.5)), like=jnp.zeros(2))


def is_typed_key(array):
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def refuse_first(monkeypatch, count=1):
    """The first judgements are refusals, whatever the evidence."""
    from follmer.judging import audit

    judge, told = audit.judge, []

    def strict(found, audit, answers=None):
        told.append(found)
        refused = Judgement(Verdict.DO_NOT_USE, "made up")
        return refused if len(told) <= count else judge(found, audit, answers)

    monkeypatch.setattr(audit, "judge", strict)


def test_the_first_rung_that_can_be_used_ends_the_climb(gaussian, key):
    posterior = fit(gaussian, key=key, progress=False)
    assert [attempt.rung for attempt in posterior.plan] == ["mixture"]
    assert posterior.plan[0].verdict == "trustworthy"
    assert isinstance(posterior.sampler, MixtureFlow)
    assert posterior.history == {}
    assert posterior.gradient_evaluations > 10_000
    assert "one Gaussian fitted to chains (mixture: trustworthy)" in posterior.notes[0]


def test_a_refused_rung_is_followed_by_the_next(gaussian, key, monkeypatch):
    refuse_first(monkeypatch)
    posterior = fit(gaussian, key=key, num_iterations=20, progress=False)
    assert [attempt.rung for attempt in posterior.plan] == ["mixture", "flow"]
    assert isinstance(posterior.sampler, Flow)
    assert len(posterior.notes) == 2
    assert posterior.plan[1].gradient_evaluations > 0
    assert all(attempt.seconds > 0 for attempt in posterior.plan)


def test_where_no_process_will_do_the_chains_themselves_are_returned(gaussian, key, monkeypatch):
    refuse_first(monkeypatch, count=2)
    posterior = fit(gaussian, key=key, num_iterations=20, progress=False)
    assert [attempt.rung for attempt in posterior.plan] == ["mixture", "flow", "chains"]
    assert posterior.verdict is Verdict.TRUSTWORTHY
    assert isinstance(posterior.sampler, StoredDraws)
    x = np.asarray(posterior.sampler.draws)
    found = posterior.diagnostics(key=key)
    assert found.rhat < 1.01
    error = 0.5 / np.sqrt(found.ess_fraction * found.num_draws)
    assert np.all(np.abs(x.mean(axis=(0, 1)) - 2.0) < 4 * error)


def test_where_all_fail_the_best_is_returned_and_says_so(gaussian, key, monkeypatch):
    refuse_first(monkeypatch, count=3)
    posterior = fit(gaussian, key=key, num_iterations=20, progress=False)
    assert [attempt.verdict for attempt in posterior.plan] == 3 * ["do not use"]
    assert posterior.verdict is Verdict.DO_NOT_USE
    # The mixture is this Gaussian, and its bounds on ln Z are next to equal.
    assert isinstance(posterior.sampler, MixtureFlow)


def test_the_verdict_is_judged_once_and_stored(gaussian, key, tmp_path):
    posterior = fit(gaussian, key=key, progress=False)
    assert posterior.verdict is Verdict.TRUSTWORTHY
    told = [posterior.summary(key=jax.random.key(i)).splitlines()[-1] for i in range(3)]
    assert set(told) == {told[0]}
    posterior.save(tmp_path / "p")
    assert load(tmp_path / "p", gaussian).judgement == posterior.judgement


def test_fresh_draws_that_say_otherwise_are_told(gaussian, key):
    posterior = fit(gaussian, key=key, progress=False)
    refused = posterior.with_judgement(Judgement(Verdict.DO_NOT_USE, "made up"))
    told = refused.summary(key=key)
    assert "alone would be “trustworthy”" in told
    assert told.splitlines()[-1] == "Verdict: do not use. Made up."


def test_a_flat_direction_is_named_and_nothing_is_trained(key):
    target = Target(
        lambda theta: norm.logpdf(theta["a"]), like={"a": jnp.zeros(()), "b": jnp.zeros(3)}
    )
    posterior = fit(target, key=key, progress=False)
    assert posterior.verdict is Verdict.DO_NOT_USE
    assert "does not fall off along b[0]" in posterior.judgement.advice
    assert [attempt.rung for attempt in posterior.plan] == ["mixture"]


def test_after_the_time_is_up_nothing_new_is_begun(gaussian, key, monkeypatch):
    refuse_first(monkeypatch, count=9)
    posterior = fit(gaussian, key=key, progress=False, max_seconds=1e-3)
    assert [attempt.rung for attempt in posterior.plan] == ["mixture"]


def test_training_ends_when_the_time_is_up(gaussian, key):
    options = {**QUICK, "num_iterations": 1000}
    posterior = fit(gaussian, key=key, precondition="identity", max_seconds=1e-3, **options)
    assert len(posterior.history["loss"]) == QUICK["chunk_size"]
    assert any("the time was up at iteration 10 of training" in one for one in posterior.notes)


def test_what_the_user_sets_stands_on_every_rung(gaussian, key):
    posterior = fit(gaussian, key=key, **QUICK, gamma=2.0, drift="mlp", audit=False)
    process = posterior.sampler.process
    assert (process.gamma, process.drift, process.num_steps) == (2.0, "mlp", 4)
    assert len(posterior.history["loss"]) == 20


def test_no_audit_no_trust(gaussian, key):
    posterior = fit(gaussian, key=key, audit=False, progress=False)
    assert posterior.audit is None
    assert posterior.plan[0].verdict == "use the weights"


@pytest.mark.parametrize("precondition", ["auto", "explore"])
def test_a_resumed_climb_repeats_neither_survey_nor_search(
    precondition, key, tmp_path, monkeypatch
):
    options = {**QUICK, "precondition": precondition, "drift": "mlp", "key": key}
    target = Target(banana, like=jnp.zeros(2))
    whole = fit(target, **options)

    def stop(report):
        raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted"):
        fit(target, **options, checkpoint=tmp_path, callbacks=[stop])

    def again(*given, **named):
        raise AssertionError("computed again")

    for name in ("find_modes", "populate", "temper"):
        if not (precondition == "explore" and name in ("find_modes", "populate")):
            monkeypatch.setattr(f"follmer.plans.survey.{name}", again)
    resumed = fit(target, **options, checkpoint=tmp_path, resume=True)
    jax.tree.map(
        np.testing.assert_array_equal, resumed.sampler.parameters, whole.sampler.parameters
    )
    jax.tree.map(np.testing.assert_array_equal, resumed.history, whole.history)
    assert resumed.plan[0].rung == whole.plan[0].rung
    if precondition == "auto":
        assert resumed.audit == whole.audit


def test_no_two_consumers_of_a_default_fit_get_the_same_key(key, monkeypatch):
    """Every key that is drawn from on the host, or handed to a program, is used once."""
    used = collections.Counter()
    generator, draw_rows = keys.generator, keys.key_rows

    def record(name, given, call=0):
        data = tuple(np.asarray(jax.random.key_data(given)).ravel().tolist())
        used[(name, (data, call))] += 1

    def recording_generator(given, name):
        if name != "rows":  # these are recorded as such
            record(f"generator {name}", given)
        return generator(given, name)

    def recording_rows(given, count):
        record("rows", given)
        return draw_rows(given, count)

    import follmer.fitting.training as training
    import follmer.judging.audit as audit
    import follmer.mcmc.chains as chains
    import follmer.mcmc.modes as modes
    import follmer.mcmc.population as population
    import follmer.plans.rungs as rungs
    import follmer.plans.survey as survey
    import follmer.posterior.samplers as samplers

    for module in (keys, modes, population, survey, rungs, audit, samplers):
        if hasattr(module, "generator"):
            monkeypatch.setattr(module, "generator", recording_generator)
    for module in (audit, samplers, training):
        monkeypatch.setattr(module, "key_rows", recording_rows)
    for module, name in ((chains, "advance"), (training, "_init"), (training, "_advance")):
        function = getattr(module, name)

        def recording(*given, function=function, name=name, **named):
            place = [isinstance(one, jax.Array) and is_typed_key(one) for one in given].index(True)
            # Moves fold one key by the number of the call, training by the iteration.
            call = {"advance": lambda: given[place + 1], "_advance": lambda: given[1].iteration}
            record(name, given[place], int(call.get(name, lambda: 0)()))
            return function(*given, **named)

        monkeypatch.setattr(module, name, recording)
    refuse_first(monkeypatch)
    target = Target(banana, like=jnp.zeros(2))
    posterior = fit(target, key=key, num_iterations=20, chunk_size=10, progress=False)
    assert [attempt.rung for attempt in posterior.plan][:2] == ["mixture", "flow"]
    posterior.sample(8, key=key)
    assert len(used) > 40
    data = collections.Counter(data for _, data in used.elements())
    repeated = {name: count for (name, key_data), count in used.items() if data[key_data] > 1}
    assert not repeated


def test_an_nsfs_is_one_rung(gaussian, key):
    algorithm = NSFS(gaussian, drift="mlp", num_steps=3, num_paths=4, num_iterations=5)
    posterior = fit(algorithm, key=key, progress=False, audit=False)
    assert [attempt.rung for attempt in posterior.plan] == ["given"]
    assert posterior.notes == ()


def test_no_key_is_used_twice_on_the_device(gaussian, key, monkeypatch):
    refuse_first(monkeypatch)
    with jax.debug_key_reuse(True):
        posterior = fit(gaussian, key=key, num_iterations=20, chunk_size=10, progress=False)
        posterior.sample(8, key=jax.random.key(1))
    assert [attempt.rung for attempt in posterior.plan] == ["mixture", "flow"]
