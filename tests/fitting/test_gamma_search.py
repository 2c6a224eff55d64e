import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import follmer
from follmer import NSFS, NonFiniteError, Target
from follmer.fitting import training
from follmer.fitting.gamma_search import GAMMAS, search_gamma

SD = 0.1
OPTIONS = {
    "step_rule": "euler_maruyama",
    "drift_options": {"width": 4, "depth": 1},
    "num_steps": 4,
    "num_iterations": 100,
}


def gaussian():
    """The reference process itself at gamma = SD²: no other needs so little of the drift."""
    return Target(lambda x: jnp.sum(norm.logpdf(x, 0.0, SD)), like=jnp.zeros(2))


@pytest.fixture(scope="module")
def algorithm():
    return NSFS(gaussian(), **OPTIONS | {"num_iterations": 5000})


@pytest.fixture
def few_gammas(monkeypatch):
    """Every gamma is compiled anew, so fits try three."""
    monkeypatch.setattr("follmer.fitting.gamma_search.GAMMAS", (0.5**2, SD**2, 0.01**2))


@pytest.mark.slow
def test_fit_finds_the_gamma_of_the_target_and_says_so(few_gammas, key):
    seen = []
    posterior = follmer.fit(
        gaussian(),
        key=key,
        gamma="search",
        precondition="identity",
        audit=False,
        progress=False,
        callbacks=[seen.append],
        **OPTIONS,
    )
    assert posterior.sampler.process.gamma == SD**2
    (note,) = posterior.notes
    assert note.startswith("gamma 0.01, by the ELBO of runs of 100 iterations")
    assert len(seen) == 1  # the short runs are not reported
    per_run = NSFS(gaussian(), **OPTIONS).gradient_evaluations(100)
    assert posterior.gradient_evaluations == 4 * per_run


@pytest.mark.slow
def test_an_algorithm_is_searched_like_a_target(few_gammas, key):
    posterior = follmer.fit(
        NSFS(gaussian(), **OPTIONS), key=key, gamma="search", audit=False, progress=False
    )
    assert posterior.sampler.process.gamma == SD**2


def test_the_highest_elbo_wins_after_runs_of_a_tenth(algorithm):
    tried = []

    def elbo(short):
        tried.append((short.process.gamma, short.num_iterations))
        return -abs(short.process.gamma - 0.2**2)

    choice = search_gamma(algorithm, elbo)
    assert choice.algorithm.process.gamma == 0.2**2
    assert choice.algorithm.num_iterations == 5000
    assert tried == [(gamma, 500) for gamma in GAMMAS]


def test_a_gamma_that_cannot_be_trained_is_out(algorithm):
    def elbo(short):
        if short.process.gamma > 0.01:
            raise NonFiniteError("diverged.")
        return np.nan if short.process.gamma < 0.001 else -short.process.gamma

    choice = search_gamma(algorithm, elbo)
    assert choice.algorithm.process.gamma == 0.05**2
    assert "0.25: -inf" in choice.words


def test_where_no_gamma_can_be_trained_the_error_is_raised(algorithm):
    def elbo(short):
        raise NonFiniteError(f"diverged at {short.process.gamma}.")

    with pytest.raises(NonFiniteError, match="diverged"):
        search_gamma(algorithm, elbo)


def test_an_interrupt_ends_the_search(key, monkeypatch):
    def interrupted(self, run, bar):
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Loop, "chunk", interrupted)
    with pytest.warns(UserWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        follmer.fit(
            gaussian(), key=key, gamma="search", precondition="identity", progress=False, **OPTIONS
        )


def test_other_words_are_no_gamma():
    with pytest.raises(follmer.InputError, match="gamma must be"):
        follmer.fit(gaussian(), key=jax.random.key(0), gamma="serach")


@pytest.mark.slow
@pytest.mark.parametrize("is_algorithm", [False, True], ids=["target", "algorithm"])
def test_a_resumed_run_does_not_search_again(is_algorithm, few_gammas, key, tmp_path, monkeypatch):
    options = {"key": key, "gamma": "search", "audit": False, "progress": False}
    options |= {"checkpoint": tmp_path, "chunk_size": 50}
    what = NSFS(gaussian(), **OPTIONS) if is_algorithm else gaussian()
    options |= {} if is_algorithm else {"precondition": "identity", **OPTIONS}
    follmer.fit(what, callbacks=[lambda report: True], **options)
    monkeypatch.setattr("follmer.fitting.ladder.search_gamma", None)
    resumed = follmer.fit(what, resume=True, **options)
    assert resumed.sampler.process.gamma == SD**2
    assert len(resumed.history["loss"]) == 100
