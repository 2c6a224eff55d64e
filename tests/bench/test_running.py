"""One record per target and method, whatever happens."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import follmer
from follmer.bench import baselines, posteriordb, running
from follmer.bench.baselines import Baseline, Result, laplace
from follmer.bench.targets import gaussian, regression
from follmer.errors import InputError
from follmer.judging import Judgement, Verdict
from follmer.nsfs import Draws

# Errors of 100 exact draws of this regression vary by 48 %; at least 20 sets are averaged.
RATIO_ERROR = 4 * 0.48 / np.sqrt(20)


def result(draws, log_weights=None):
    return Result(draws, log_weights, 1.0, 10)


@pytest.fixture
def only_laplace(monkeypatch):
    """A failing and a skipped method beside a sound one."""

    def fails(target, key):
        raise ZeroDivisionError("no luck\nand more of it")

    methods = {
        "mean_field": Baseline(fails),
        "flow": Baseline(fails, min_dim=1000),
        "laplace": Baseline(laplace),
    }
    monkeypatch.setattr(running, "BASELINES", methods)
    return tuple(methods)


def test_failures_and_skips_are_rows_with_their_reason(only_laplace):
    lines = []
    records = list(running.run(["double_well"], methods=only_laplace, progress=lines.append))
    assert [record.method for record in records] == list(only_laplace)
    assert records[0].note == "failed: ZeroDivisionError: no luck"
    assert records[1].note == "skipped: needs at least 1000 dimensions"
    assert records[0].elbo is None
    assert records[2].note == ""
    assert all(record.truth == 0.293 and record.dim == 1 for record in records)
    assert lines == [f"double_well: {method}" for method in only_laplace]


def test_a_record_holds_evidence_modes_and_time():
    (record,) = running.run(["mixture2"], methods=["laplace"], seed=1)
    assert record.log_evidence == pytest.approx(-np.log(2), abs=0.01)
    assert record.modes_found == "1 of 2"
    assert record.mode_weight_error == pytest.approx(0.5, abs=1e-3)
    assert record.predictive_ratio is None
    assert record.seconds > 0
    assert record.gradient_evaluations > 0
    assert not record.truth_is_approximate


def test_exact_draws_of_a_regression_predict_as_well_as_exact_draws():
    (record,) = running.run(["linear_regression_d32"], methods=["laplace"])
    assert record.predictive_ratio == pytest.approx(1.0, abs=RATIO_ERROR)
    assert record.log_evidence == pytest.approx(record.truth, abs=0.01)


def test_missing_data_are_told_in_every_row(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLLMER_DATA", str(tmp_path))
    records = list(running.run(["ionosphere", "gaussian_r1"], methods=["laplace"]))
    assert records[0].note.startswith("failed: FileError: the data file")
    assert records[1].note == ""


@pytest.mark.parametrize(
    ("names", "methods", "says"),
    [
        (["double_wall"], ["laplace"], "'double_well'"),
        (["double_well"], ["laplacian"], "'laplace'"),
    ],
)
def test_unknown_names_are_refused_before_anything_runs(names, methods, says):
    with pytest.raises(InputError, match=says):
        running.run(names, methods=methods)


def test_draws_without_weights_claim_no_evidence(monkeypatch, key):
    point = follmer.sgd(gaussian(np.zeros(2), np.eye(2)), key=key, num_iterations=5, progress=False)
    point = point.with_judgement(Judgement(Verdict.NO_PROOF, "one point"))
    monkeypatch.setattr(running, "fit", lambda target, **options: point)
    found = running.default_fit(point.target, key)
    assert (found.elbo, found.log_evidence, found.ess_fraction) == (None, None, None)
    assert found.verdict == "no proof of quality"


def test_the_default_fit_is_measured_by_its_weighted_draws(monkeypatch, key):
    target = gaussian(np.zeros(2), np.eye(2))
    given = {}

    def fit(target, **options):
        given.update(options)
        draws = jax.random.normal(key, (running.NUM_DRAWS, 2))
        # E exp = 1.
        log_weights = 0.1 * draws[:, 0] - 0.005
        return SimpleNamespace(
            weighted_sample=lambda number, *, key: Draws(draws[:number], log_weights),
            notes=("a note",),
            gradient_evaluations=123,
            sampler=SimpleNamespace(weighs=True),
            verdict=Verdict.TRUSTWORTHY,
        )

    monkeypatch.setattr(running, "fit", fit)
    found = running.default_fit(target, key)
    assert given.keys() == {"key", "progress"}
    assert found.log_evidence == pytest.approx(0.0, abs=4 * found.log_evidence_se)
    assert found.elbo == pytest.approx(-0.005, abs=4 * 0.1 / np.sqrt(running.NUM_DRAWS))
    assert found.gradient_evaluations == 123
    assert found.note == "a note"
    assert found.verdict == "trustworthy"


def test_weights_of_modes_are_those_of_the_weighted_draws():
    draws = np.array([[-1.1], [-0.9], [1.0], [1.2]])
    modes = np.array([[-1.0], [1.0], [5.0]])
    plain = running.mode_masses(draws, modes)
    np.testing.assert_allclose(plain, [0.5, 0.5, 0.0])
    weighted = running.mode_masses(draws, modes, np.array([1.0, 1.0, 3.0, 3.0]) / 8)
    np.testing.assert_allclose(weighted, [0.25, 0.75, 0.0])


@pytest.mark.parametrize(("scale", "shift"), [(2.0, 0.0), (1.0, 1.0)])
def test_wrong_draws_predict_worse_and_weights_can_mend_them(scale, shift):
    known, rng = regression(32, 0), np.random.default_rng(0)
    mean, factor = known.posterior
    noise = rng.normal(size=(20_000, 33))
    exact = mean + noise @ factor.T
    assert running.predictive_ratio(result(exact), known, rng) == pytest.approx(
        1.0, abs=RATIO_ERROR
    )
    wrong = mean + factor.sum(axis=1) * shift + scale * noise @ factor.T
    assert running.predictive_ratio(result(wrong), known, rng) > 2
    # Half of the draws are exact, and the weights say which.
    mixed = np.concatenate([exact, wrong])
    log_weights = np.repeat([0.0, -50.0], len(exact)) + 0.01 * rng.normal(size=len(mixed))
    mended = running.predictive_ratio(result(mixed, log_weights), known, rng)
    assert mended == pytest.approx(1.0, abs=RATIO_ERROR)


@pytest.fixture
def two_scalars(monkeypatch):
    """A posterior of posteriordb whose draws are a standard normal and three times one."""
    target = gaussian(np.zeros(2), np.diag([1.0, 9.0]))
    monkeypatch.setattr(posteriordb, "POSTERIORS", {"made_up": None})
    monkeypatch.setattr(posteriordb, "build", lambda name: target)
    monkeypatch.setattr(
        posteriordb, "named_scalars", lambda draws: {"a": draws[:, 0], "b": draws[:, 1]}
    )
    return monkeypatch


@pytest.mark.parametrize(
    ("reference", "reached", "worst"),
    [
        ({"a": (0.0, 1.0), "b": (0.0, 3.0)}, True, None),
        ({"a": (0.0, 1.0), "b": (1.5, 3.0)}, False, "b"),
        ({"a": (0.0, 1.0), "b": (0.0, 2.0)}, False, None),
    ],
)
@pytest.mark.usefixtures("x64")
def test_posteriordb_is_judged_by_means_and_spreads(two_scalars, reference, reached, worst):
    two_scalars.setattr(posteriordb, "reference", lambda name: reference)
    (record,) = running.run_posteriordb(methods=["laplace"])
    assert record.posterior == "made_up"
    assert record.note == ""
    assert record.reached is reached
    se = 1 / np.sqrt(baselines.NUM_DRAWS)
    if worst:
        assert record.worst == worst
        assert record.location_error == pytest.approx(0.5, abs=4 * se)
    else:
        assert record.location_error < 8 * se


@pytest.mark.usefixtures("x64", "two_scalars")
def test_posteriordb_refuses_unknown_names():
    with pytest.raises(InputError, match="'made_up'"):
        running.run_posteriordb(["made_down"])


def test_posteriordb_asks_for_double_precision():
    with pytest.raises(InputError, match="jax_enable_x64"):
        running.run_posteriordb()


def test_held_out_rows_have_the_density_of_an_average_over_weighted_draws():
    x = np.linspace(-1.0, 1.0, 5)[:, None]
    target = follmer.from_network(
        lambda w, rows: rows @ w,
        params=jnp.zeros((1, 1)),
        data=(x, x[:, 0]),
        likelihood=follmer.likelihoods.Normal(1.0),
    )
    draws = jnp.asarray([0.0, 2.0])[:, None, None] * jnp.ones((2, 1, 1))
    found = result(draws, jnp.log(jnp.asarray([0.9, 0.1])))
    rows, y = np.array([[1.0]]), np.array([0.0])
    densities = norm.logpdf(0.0, [0.0, 2.0])
    plain = running.held_out_density(target, found, rows, y)
    assert plain == pytest.approx(logsumexp(densities, b=0.5), rel=1e-5)
    weighted = found._replace(verdict="use the weights")
    assert running.held_out_density(target, weighted, rows, y) == pytest.approx(
        logsumexp(densities, b=[0.9, 0.1]), abs=1e-3
    )
