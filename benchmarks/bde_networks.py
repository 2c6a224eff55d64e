"""`sklearn-contrib-bde` on the data sets of `follmer bench networks`, in an environment of its own.

It pins other versions than ours, so this script imports nothing of follmer:

    python3.11 -m venv .venv-bde && .venv-bde/bin/pip install sklearn-contrib-bde==1.0.2
    FOLLMER_DATA=… .venv-bde/bin/python benchmarks/bde_networks.py boston concrete --splits 5

The network is that of `follmer bench networks`, the settings are those of bde's README. Prints the
log predictive density in y's units, RMSE, coverage of 90 % intervals and seconds for each split.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

_HIDDEN = [16, 16]
# As in bde's own evaluation: sd = softplus(second output) + 1e-6.
_LEAST_SD = 1e-6


def scores(name: str, split: int) -> dict[str, float]:
    """One split of a UCI set."""
    from bde import BdeRegressor
    from bde.loss import GaussianNLL
    from scipy.special import logsumexp
    from scipy.stats import norm

    x, y, x_test, y_test, unit = _data(name, split)
    began = time.perf_counter()
    model: Any = BdeRegressor(
        hidden_layers=_HIDDEN,
        n_members=8,
        seed=0,
        loss=GaussianNLL(),
        epochs=200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=5000,
        n_samples=2000,
        n_thinning=2,
        patience=10,
    )
    model.fit(x=x, y=y)
    raw = np.asarray(model.predict(x_test, raw=True), float).reshape(-1, len(x_test), 2)
    seconds = time.perf_counter() - began
    mean, sd = raw[..., 0], np.logaddexp(0.0, raw[..., 1]) + _LEAST_SD
    logs = logsumexp(norm.logpdf(y_test, mean, sd), axis=0) - np.log(len(mean))
    below = norm.cdf(y_test, mean, sd).mean(axis=0)
    return {
        "lpd": float(np.mean(logs)) - np.log(unit),
        "rmse": unit * float(np.sqrt(np.mean((mean.mean(axis=0) - y_test) ** 2))),
        "coverage": float(np.mean((below > 0.05) & (below < 0.95))),
        "seconds": seconds,
    }


def _data(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Training and test rows, scaled by the training rows, and y's unit."""
    with np.load(Path(os.environ["FOLLMER_DATA"]) / "uci" / f"{name}.npz") as file:
        table, features, column = file["data"], file["features"], file["target"]
        train, test = file["train_idx"][split], file["test_idx"][split]
    x, y = table[:, features], table[:, column]
    mean, sd = x[train].mean(axis=0), x[train].std(axis=0)
    x = ((x - mean) / np.where(sd > 0, sd, 1.0)).astype(np.float32)
    center, unit = float(y[train].mean()), float(y[train].std())
    y = ((y - center) / unit).astype(np.float32)
    return x[train], y[train], x[test], y[test], unit


def main() -> None:
    """One line per set and split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--first-split", type=int, default=0)
    asked = parser.parse_args()
    for name in asked.names:
        for split in range(asked.first_split, asked.first_split + asked.splits):
            found = scores(name, split)
            told = "  ".join(f"{key} {value:.3f}" for key, value in found.items())
            print(f"{name:<9} split {split}  {told}", flush=True)


if __name__ == "__main__":
    main()
