"""Tables that people can read and JSON that programs can."""

import json

import pytest

from follmer.bench.running import PosteriordbRecord, Record
from follmer.bench.table import as_json, table
from follmer.tools.tables import machine

RECORDS = [
    Record(
        "ionosphere",
        "follmer",
        35,
        elbo=-111.7,
        log_evidence=-111.61,
        log_evidence_se=0.01,
        truth=-111.61,
        truth_is_approximate=True,
        ess_fraction=0.7,
        khat=float("-inf"),
        verdict="use the weights",
        seconds=12.34,
        gradient_evaluations=48000,
    ),
    Record("ionosphere", "flow", 35, elbo=float("nan"), note="failed: ValueError: a|b"),
]


def test_rows_are_aligned_and_empty_columns_left_out():
    lines = table(RECORDS).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert "≈ -111.610" in lines[2]
    assert "48,000" in lines[2]
    assert "70.0%" in lines[2]
    assert "modes" not in lines[0]
    assert "predictive" not in lines[0]


def test_every_row_has_as_many_cells_as_the_heading():
    counts = {line.replace("\\|", "").count("|") for line in table(RECORDS).splitlines()}
    assert len(counts) == 1


def test_posteriordb_has_its_own_columns():
    record = PosteriordbRecord("eight", "nuts", 10, 0.05, "mu", 0.95, 1.05, True, None, 3.0, 100)
    lines = table([record]).splitlines()
    assert "mean error" in lines[0]
    assert "yes" in lines[2]
    failed = table([PosteriordbRecord("eight", "nuts", 10, note="failed: E: why")])
    assert " no " not in failed


def test_nothing_is_an_empty_table():
    assert table([]) == ""


def test_json_has_null_for_what_is_not_finite():
    measured_on = machine("follmer bench ionosphere")
    read = json.loads(as_json(measured_on, RECORDS), parse_constant=pytest.fail)
    assert read["machine"]["command"] == "follmer bench ionosphere"
    assert read["machine"]["cores"] >= 1
    first, second = read["results"]
    assert first["khat"] is None
    assert second["elbo"] is None
    assert first["truth_is_approximate"] is True
    assert first["gradient_evaluations"] == 48000
