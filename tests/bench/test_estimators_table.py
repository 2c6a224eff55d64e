"""The table of estimators: who is the best, and records that are gone on with."""

import numpy as np
import pytest
from benchmarks.estimators import is_close, stored, table

from follmer.bench.networks import NetworkRecord
from follmer.bench.table import as_json


@pytest.mark.parametrize(
    ("behind", "close"),
    [
        ([0.0, 0.0, 0.0], True),  # the best itself
        ([0.1, -0.1, 0.03], True),  # .01 ± .058
        ([0.1, 0.1, 0.1], False),  # always behind
        ([0.1, 0.1, np.nan], False),  # failed once
        ([0.1], False),  # one split has no standard error
    ],
)
def test_close_is_within_a_standard_error_of_the_best(behind, close):
    assert is_close(np.array(behind)) == close


def test_sets_on_which_a_method_is_close_are_counted():
    densities = {"a": [-1.0, -1.2], "b": [-1.1, -1.1], "c": [-2.0, -2.0]}
    records = [
        NetworkRecord(name, split, method, lpd=lpd, error=0.5, seconds=1.0)
        for name in ("wine", "digits")
        for method, values in densities.items()
        for split, lpd in enumerate(values)
    ]
    told = table([*records, NetworkRecord("power", 0, "a", lpd=-1.0, error=0.5, seconds=1.0)])
    counts = [line.split("|")[1:3] for line in told.split("\n\n")[1].splitlines()[2:]]
    found = {method.strip(): count.strip() for method, count in counts}
    assert found == {"a": "3 of 3", "b": "2 of 2", "c": "0 of 2"}


def test_records_of_the_same_commit_are_gone_on_with(tmp_path):
    path, records = tmp_path / "some.json", [NetworkRecord("wine", 5, "MLP", lpd=-0.1)]
    assert stored(path, "abc") == []
    path.write_text(as_json({"commit": "abc"}, records))
    assert stored(path, "abc") == records
    with pytest.raises(SystemExit, match="measured at abc, not at def"):
        stored(path, "def")
