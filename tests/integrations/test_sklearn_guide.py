"""The guide to the estimators runs, block after block."""

import functools
import re
from pathlib import Path

import pytest

from follmer.integrations import estimators

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sklearn.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_blocks_of_the_guide_run_in_turn(monkeypatch, tmp_path, capsys):
    brief = functools.partial(
        estimators.fit, precondition="ensemble", num_iterations=100, audit=False, check=False
    )
    monkeypatch.setattr(estimators, "fit", brief)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(block, names)
    assert "log predictive density" in capsys.readouterr().out
    assert (tmp_path / "visits.follmer").exists()
