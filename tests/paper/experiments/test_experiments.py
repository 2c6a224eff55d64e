"""Every experiment end to end at toy size: records, figures, and what fails."""

import json
import time

import pytest

from follmer import FileError, InputError
from follmer.paper.experiments import gaussian_mixture, running
from follmer.paper.experiments.experiment import METHODS
from follmer.paper.experiments.running import EXPERIMENTS, run
from follmer.paper.report import names
from follmer.plots import METHODS as DRAWN

# Compiling takes long: all methods on one experiment, and all else under `make verify` only.
EVERY = "gaussian_mixture"
FLOWS = {name: ["n_sfs"] for name in EXPERIMENTS} | {"unmixing": ["n_sfs_decoupled"]}
# Convolutions compile slowest of all: without their chains and flows.
FLOWS |= {"mnist": ["points"]}
SLOW = ("cifar10", "weight_marginals")
RUNS = [
    *[
        pytest.param(name, "auto", flows)
        for name, flows in FLOWS.items()
        if name not in (EVERY, *SLOW)
    ],
    pytest.param(EVERY, "auto", [method for method in METHODS if method != "nuts"]),
    *[
        pytest.param(name, preset, METHODS, marks=pytest.mark.slow)
        for name in EXPERIMENTS
        for preset in ("auto", "paper")
    ],
]


@pytest.mark.parametrize(("name", "preset", "methods"), RUNS)
def test_an_experiment_goes_all_the_way_by_all_its_methods(name, preset, methods, with_data):
    with_data(name)
    results = list(run([name], preset=preset, seeds=1, tiny=True, methods=methods))
    records, trials = zip(*results, strict=True)
    assert [record.settings.get("error") for record in records] == [None] * len(records)
    wanted = set(EXPERIMENTS[name].methods(preset, True)) & set(methods)
    assert {record.method for record in records} == wanted
    assert len({(record.settings["case"], record.method) for record in records}) == len(records)
    for record in records:
        assert (record.experiment, record.preset, record.seed) == (name, preset, 0)
        assert record.seconds > 0
        assert record.metrics.keys() <= names.METRICS.keys()
        assert {"case", "verdict", "notes"} <= record.settings.keys()
        json.dumps(record._asdict(), allow_nan=False)
    assert any(metric in records[0].metrics for metric in names.EXPERIMENTS[name].headline)
    pictures = list(EXPERIMENTS[name].pictures(preset, trials, records))
    if methods != ["points"]:
        assert {"training", "chains"} & {picture.name for picture in pictures}
    assert len({picture.name for picture in pictures}) == len(pictures)
    assert all(picture.title and picture.caption.endswith(".") for picture in pictures)


def test_a_method_without_training_is_timed_while_it_draws(monkeypatch):
    judged = gaussian_mixture.judged

    def slowly(draws, modes):
        time.sleep(0.3)
        return judged(draws, modes)

    monkeypatch.setattr(gaussian_mixture, "judged", slowly)
    ((record, _),) = run(["gaussian_mixture"], seeds=1, tiny=True, methods=["mc_sfs"])
    assert record.seconds > 0.3


def test_every_experiment_and_method_has_a_name_on_the_page():
    assert names.EXPERIMENTS.keys() == EXPERIMENTS.keys()
    assert set(METHODS) <= DRAWN.keys()


@pytest.fixture
def failing(monkeypatch):
    """The mixture, whose SGLD fails and whose MC-SFS does not."""
    module = EXPERIMENTS["gaussian_mixture"]
    methods = module.methods

    def fails(target, key):
        raise ZeroDivisionError("no luck\nand more of it")

    def with_a_failure(preset, tiny):
        found = methods(preset, tiny)
        return {**found, "sgld": found["sgld"]._replace(run=fails)}

    monkeypatch.setattr(module, "methods", with_a_failure)


@pytest.mark.usefixtures("failing")
def test_a_method_that_fails_is_recorded_and_the_others_run():
    told = []
    chosen = {"seeds": 2, "tiny": True, "methods": ["sgld", "mc_sfs"], "progress": told.append}
    results = list(run(["gaussian_mixture"], **chosen))
    assert [record.method for record, _ in results] == ["mc_sfs", "sgld"] * 2
    for record, trial in results[1::2]:
        assert trial is None
        assert record.metrics == {}
        assert record.settings["error"] == "ZeroDivisionError: no luck"
        assert record.settings["case"] == "2 modes"
    assert all(trial is not None for _, trial in results[::2])
    assert "failed: no luck\nand more of it" in told
    assert "gaussian_mixture, 2 modes (auto): sgld, seed 1" in told


def test_a_case_that_cannot_be_built_fails_by_every_method(monkeypatch):
    def cases(seed, tiny):
        raise FileError("the data file is missing.", hint="put it there")
        yield

    monkeypatch.setattr(EXPERIMENTS["banana"], "cases", cases)
    records = [record for record, _ in run(["banana"], seeds=1, tiny=True)]
    assert [record.method for record in records] == ["n_sfs", "sgld", "sgd"]
    assert {r.settings["error"] for r in records} == {"FileError: the data file is missing."}


def test_a_case_may_have_its_own_options_and_the_record_tells_them(monkeypatch):
    module = EXPERIMENTS["gaussian_mixture"]
    cases = module.cases

    def with_options(seed, tiny):
        for case in cases(seed, tiny):
            yield case._replace(options={"mc_sfs": {"num_steps": 7}})

    monkeypatch.setattr(module, "cases", with_options)
    chosen = {"seeds": 1, "tiny": True, "methods": ["mc_sfs", "sgld"]}
    (first, trial), (second, _) = run(["gaussian_mixture"], **chosen)
    assert first.settings["num_steps"] == trial.draws.posterior.sampler.describe()["num_steps"] == 7
    assert "num_steps" not in second.settings


def test_ctrl_c_during_training_ends_the_run(monkeypatch):
    class Interrupted:
        notes = (f"{running.INTERRUPTED} at iteration 3",)

    module = EXPERIMENTS["gaussian_mixture"]
    methods = module.methods("auto", True)
    cut_short = methods["n_sfs"]._replace(run=lambda target, key: Interrupted())
    monkeypatch.setattr(module, "methods", lambda preset, tiny: {"n_sfs": cut_short})
    with pytest.raises(KeyboardInterrupt):
        next(run(["gaussian_mixture"], tiny=True))


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"names": ["bananas"]}, "'banana'"),
        ({"preset": "papers"}, "'paper'"),
        ({"methods": ["nut"]}, "'nuts'"),
        ({"seeds": 0}, "seeds must be"),
        ({"names": ["ica"], "methods": ["nuts"]}, "there is nothing to run"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(chosen, says):
    with pytest.raises(InputError, match=says):
        run(**{"names": ["banana"], **chosen})
