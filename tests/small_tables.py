"""Tables of mixed columns, made up."""

import csv
import io

import numpy as np

HEADER = ["id", "x", "city", "garden", "when", "unit", "y"]


def mixed(rows, seed=0, outcome=lambda y, rng: f"{y:.4f}"):
    """CSV of an identifier, a number, labels, truths, dates and a constant, with missing cells."""
    rng = np.random.default_rng(seed)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADER)
    for i in range(rows):
        x, city = rng.normal(), rng.choice(["a", "b", "ö"])
        day = np.datetime64("2022-01-01") + int(rng.integers(0, 700))
        y = 3.0 + 2.0 * x + (1.5 if city == "a" else 0.0) + 0.5 * rng.normal()
        shown = "" if rng.random() < 0.05 else f"{x:.4f}"
        garden = rng.choice(["yes", "no"])
        writer.writerow([f"row-{i}", shown, city, garden, day, "m", outcome(y, rng)])
    return text.getvalue()
