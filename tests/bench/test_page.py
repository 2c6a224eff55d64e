"""The page of benchmarks is what its records say."""

import json

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
