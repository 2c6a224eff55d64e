"""Figures of docs/results that records alone can draw: python docs/figures/experiments.py."""

import json
from pathlib import Path

from follmer import plots
from follmer.paper.experiments.experiment import PRESETS, Record
from follmer.paper.experiments.linear_regression import errors_picture
from follmer.paper.report import write_page

FOLDER = Path(__file__).parent.parent / "results" / "linear_regression"


def main() -> None:
    stored = json.loads((FOLDER / "results.json").read_text())
    figures = json.loads((FOLDER / "figures.json").read_text())
    for preset in PRESETS:
        picture = errors_picture([Record(**one) for one in stored if one["preset"] == preset])
        file = f"figures/linear_regression_{preset}_{picture.name}.svg"
        plots.save(picture.figure, FOLDER / file)
        for words in figures:
            if words["file"] == file:
                words["caption"] = picture.caption
        print(file)
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    (FOLDER / "figures.json").write_text(text)
    print(write_page(FOLDER))


if __name__ == "__main__":
    main()
