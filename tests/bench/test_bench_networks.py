"""`follmer bench networks`: its problems, its table, and failures told in their rows."""

import numpy as np
import pytest

from follmer import InputError
from follmer.bench import network_baselines, networks
from follmer.bench.networks import NetworkRecord, predicted, problem, run, table


@pytest.fixture(scope="module")
def boston():
    return problem("boston", 0)


def test_rows_are_scaled_by_the_training_rows(boston):
    data = boston.target.data
    np.testing.assert_allclose(np.asarray(data["x"]).mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(np.asarray(data["y"]).std(), 1.0, rtol=1e-4)
    assert len(boston.x_test) == 51


def test_a_deep_ensemble_is_scored_in_ys_units(boston, monkeypatch, key):
    monkeypatch.setattr("follmer.plans.ensemble._DESCENT_STEPS", 300)
    found = network_baselines.deep_ensemble(boston.target, key)
    scores = predicted(found, boston, key)
    # The sd of y is 9.2: a network that has learned anything is below it.
    assert 1.0 < scores["error"] < 9.0
    assert 0.5 < scores["coverage"] <= 1.0
    assert np.isfinite(scores["lpd"])


def test_a_laplace_approximation_changes_the_last_layer_alone(boston, monkeypatch, key):
    monkeypatch.setattr(network_baselines, "_NUM_DRAWS", 20)
    found = network_baselines.last_layer_laplace(boston.target, key)
    draws = found.sampler.draws[0]
    start = boston.target.space.leaves[-2].start
    assert boston.target.dim - start == 16 * 2 + 2
    assert np.all(np.ptp(draws[:, :start], axis=0) == 0)
    assert np.all(np.ptp(draws[:, start:], axis=0) > 0)


def test_what_fails_says_so_in_its_row(monkeypatch):
    def fails(target, key):
        raise RuntimeError("no luck")

    monkeypatch.setitem(networks.BASELINES, "sgd", fails)
    (record,) = run(["boston"], methods=["sgd"])
    assert "no luck" in record.note
    assert "no luck" in table([record])


def test_means_and_standard_errors_stand_beside_published_figures():
    records = [
        NetworkRecord("boston", split, "sgd", lpd, 3.0, 0.9, 1.0)
        for split, lpd in enumerate((-2.0, -3.0))
    ]
    text = table(records)
    assert "-2.500 ± 0.500" in text
    assert "-2.46" in text


@pytest.mark.parametrize(("names", "methods"), [(["bostn"], ["sgd"]), (["boston"], ["sdg"])])
def test_unknown_names_are_refused(names, methods):
    with pytest.raises(InputError, match="there is no"):
        run(names, methods=methods)
