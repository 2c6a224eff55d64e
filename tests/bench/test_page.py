"""The page of benchmarks is what its records say."""

import json

import pytest
from benchmarks import experiments_page
from benchmarks.page import PAGE, RECORDS, page


def test_the_page_is_written_from_its_records():
    """After new records: python -m benchmarks.page."""
    assert PAGE.read_text() == page()


def test_every_record_tells_its_command_and_commit():
    for path in RECORDS.glob("*.json"):
        machine = json.loads(path.read_text())["machine"]
        assert machine["command"].startswith(
            ("follmer bench", "python -m benchmarks.", "python benchmarks/")
        )
        assert machine["commit"]


def test_the_page_of_experiments_is_written_from_its_records():
    """After new records: python -m benchmarks.experiments_page."""
    assert experiments_page.PAGE.read_text() == experiments_page.page()


def made_up(seed, case="", preset="auto", **metrics):
    settings = {
        "case": case,
        "made": f"2026-01-0{seed + 1} 10:00 UTC, commit abc: follmer reproduce",
    }
    settings |= {"verdict": "use the weights"} if metrics else {"error": "it diverged"}
    return {
        "experiment": "banana",
        "preset": preset,
        "method": "sgld",
        "seed": seed,
        "metrics": metrics,
        "seconds": 1234.4,
        "settings": settings,
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments_page, "RESULTS", tmp_path)
    (tmp_path / "some").mkdir()
    run = {"date": "2026-01-01 09:00 UTC", "commit": "", "command": "follmer reproduce banana"}
    (tmp_path / "some" / "run.json").write_text(json.dumps(run))
    return tmp_path / "some" / "results.json"


def test_a_row_tells_its_seeds_its_failures_and_its_runs(folder):
    folder.write_text(json.dumps([made_up(0, accuracy=0.5), made_up(1)]))
    lines = experiments_page.by_row("some | accuracy").splitlines()
    (ours,) = [line for line in lines if "| auto " in line]
    cells = [cell.strip() for cell in ours.split("|")[1:-1]]
    assert cells == ["SGLD", "auto", "2", "use the weights, 1 of 2 failed", "0.5 (1 of 2)", "1,234"]
    assert lines[-2:] == [
        "- SGLD (auto): `follmer reproduce`, commit abc, 2026-01-01",
        "- SGLD (auto): `follmer reproduce`, commit abc, 2026-01-02",
    ]
    # The paper's rows stand beside ours.
    assert any("published" in line and "0.8913" in line for line in lines)


def test_a_record_that_tells_no_run_is_of_the_folders(folder):
    record = made_up(0, accuracy=0.5)
    del record["settings"]["made"]
    folder.write_text(json.dumps([record]))
    told = experiments_page.runs("some")
    assert told == "- SGLD (auto): `follmer reproduce banana`, commit unknown, 2026-01-01"


def test_a_metric_over_the_cases(folder):
    records = [made_up(0, "d = 4", mse=2.0), made_up(0, "d = 8", "paper", mse=3.0)]
    folder.write_text(json.dumps([*records, made_up(0, "d = 9", mse=9.0)]))
    told = experiments_page.by_case("some | mse | d = 4, d = 8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines()]
    assert rows[0] == ["method", "setting", "d = 4", "d = 8"]
    assert rows[2:] == [["SGLD", "auto", "2", ""], ["SGLD", "paper", "", "3"]]
    assert "use the weights" in experiments_page.by_case("some | verdict | d = 4")
