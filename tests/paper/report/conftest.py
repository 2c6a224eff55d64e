"""A run's folder with made-up results."""

import pytest

from follmer.tools.tables import machine
from made_up import SVG, png, record, write


@pytest.fixture
def records():
    banana = {"verdict": "trustworthy", "notes": ["one mode"], "num_steps": 32}
    return [
        record("banana", seed=0, accuracy=0.89, ece=0.02, settings=banana),
        record("banana", seed=1, accuracy=0.91, ece=0.03, settings=banana),
        record("banana", preset="paper", accuracy=0.88, settings={"verdict": "do not use"}),
        record("banana", "sgld", accuracy=0.885),
        record("linear_regression", predictive_mean_mae=0.1, settings={"case": "d = 64"}),
    ]


@pytest.fixture
def run(tmp_path, records):
    """The folder itself."""
    folder = tmp_path / "run"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures" / "one.svg").write_text(SVG)
    (folder / "figures" / "two.png").write_bytes(png(300, 200, (0, 255, 0)))
    figures = [
        {
            "experiment": "banana",
            "preset": "auto",
            "file": f"figures/{name}",
            "title": f"Figure {name}",
            "caption": "What it shows.",
        }
        for name in ("one.svg", "two.png")
    ]
    write(folder, results=records, figures=figures, run=machine("follmer reproduce banana"))
    return folder
