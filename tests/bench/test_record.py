"""What the record holds, and the commands of what is missing."""

import types

import pytest
from benchmarks import record
from benchmarks.record import Held, commands, lines

from follmer.paper.experiments.experiment import Method


def method(**settings):
    return Method(None, settings)


@pytest.fixture(autouse=True)
def two_experiments(monkeypatch):
    def methods(preset, tiny):
        assert not tiny
        return {"n_sfs": method(preset=preset), "nuts": method()}

    made_up = types.SimpleNamespace(methods=methods)
    monkeypatch.setattr(record, "EXPERIMENTS", {"banana": made_up, "cifar10": made_up})


def held(seeds, commit="abc"):
    return Held(set(range(seeds)), {commit}, {"2026-01-01"}, [1.2] * seeds)


def test_nothing_is_there():
    assert {line["seeds"] for line in lines({})} == {"0 of 5", "0 of 3"}
    assert list(commands({}, {})) == [
        f"follmer reproduce {name} --preset {preset} --seeds {count} --methods {methods} "
        f"--out docs/results/{name}"
        for name, count in (("banana", 5), ("cifar10", 3))
        for preset, methods in (("auto", "n_sfs,nuts"), ("paper", "n_sfs"))
    ]


def test_what_is_there_is_not_asked_for():
    found = {
        ("banana", "auto", "n_sfs"): held(5),
        ("banana", "paper", "nuts"): held(5),
        ("banana", "paper", "n_sfs"): held(4),
        ("cifar10", "auto", "n_sfs"): held(3, "unknown"),
        ("cifar10", "auto", "nuts"): held(3),
        ("cifar10", "paper", "n_sfs"): held(3),
    }
    told = {(line["experiment"], line["preset"], line["method"]): line for line in lines(found)}
    assert told["banana", "auto", "nuts"]["seeds"] == "as paper"
    assert told["banana", "paper", "n_sfs"]["seeds"] == "4 of 5"
    assert told["banana", "paper", "n_sfs"]["seconds"] == "1"
    assert told["cifar10", "auto", "n_sfs"]["commits"] == "unknown"
    assert list(commands(found, {("banana", "paper"): "banana_paper"})) == [
        "follmer reproduce banana --preset paper --seeds 5 --methods n_sfs "
        "--out docs/results/banana_paper --missing",
        "follmer reproduce cifar10 --preset auto --seeds 3 --methods n_sfs "
        "--out docs/results/cifar10",
    ]


def test_the_records_kept_are_read():
    found, folders = record.held()
    assert folders["a9a", "paper"] == "a9a_paper"
    assert found["a9a", "paper", "n_sfs_stl"].seeds == set(range(5))
