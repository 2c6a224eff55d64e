"""The estimators of `follmer.sklearn` at their defaults beside those of scikit-learn.

    python -m benchmarks.estimators [SETS] [--splits 3] [--resume]

Sets that come with scikit-learn are divided at random, nine rows in ten for training; those of UCI
have their standard splits. Splits count from 5: defaults were chosen by test rows of earlier ones.
Protein has five, so its own count from 0 again. All methods see the same rows;
those that need it get standardised ones.

The figures are the mean log predictive density of a test row, in y's units; the root mean squared
error, or the share of wrong labels; and the seconds of fit and predictions, compilation included. A
regression without a density of its own gets a normal one around its prediction, whose standard
deviation is that of the residuals by five-fold cross-validation on the training rows. Probabilities
of labels are at least machine epsilon, as in scikit-learn's `log_loss`. A Gaussian process is not
tried on more than 2000 rows: it takes the cube of their number.

Records are written after every set, split by split; `--resume` goes on where a run of the same
commit ended.
"""

import argparse
import collections
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn import datasets as bundled
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from follmer import datasets
from follmer.bench.networks import UCI, NetworkRecord
from follmer.bench.table import as_json
from follmer.datasets.dataset import Dataset
from follmer.errors import in_a_line
from follmer.sklearn import FollmerClassifier, FollmerRegressor
from follmer.tools.checks import known_names
from follmer.tools.tables import header, machine, markdown

BUNDLED: dict[str, Callable[..., Any]] = {
    "diabetes": bundled.load_diabetes,
    "breast_cancer": bundled.load_breast_cancer,
    "wine": bundled.load_wine,
    "digits": bundled.load_digits,
}
CLASSES = ("breast_cancer", "wine", "digits")
SETS = (*BUNDLED, *UCI)
# Rows up to which a Gaussian process is tried.
_MOST_ROWS = 2000
_FOLDS = 5
# The first split: test rows of those before it have chosen defaults.
_FIRST = 5
OUT = Path(__file__).parent.parent / "docs" / "results" / "bench" / "estimators.json"


def _process(num_columns: int) -> GaussianProcessRegressor:
    kernel = ConstantKernel() * RBF(np.ones(num_columns)) + WhiteKernel()
    return GaussianProcessRegressor(kernel, normalize_y=True)


# Each a function of the number of columns. Seeds are those of the split.
REGRESSORS: dict[str, Callable[[int, int], Any]] = {
    "follmer network": lambda columns, seed: FollmerRegressor(random_state=seed),
    "follmer linear": lambda columns, seed: FollmerRegressor("linear", random_state=seed),
    "BayesianRidge": lambda columns, seed: make_pipeline(StandardScaler(), BayesianRidge()),
    "GaussianProcess": lambda columns, seed: make_pipeline(StandardScaler(), _process(columns)),
    "MLP": lambda columns, seed: TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(random_state=seed)),
        transformer=StandardScaler(),
    ),
    "HistGradientBoosting": lambda columns, seed: HistGradientBoostingRegressor(random_state=seed),
}
CLASSIFIERS: dict[str, Callable[[int, int], Any]] = {
    "follmer network": lambda columns, seed: FollmerClassifier(random_state=seed),
    "follmer linear": lambda columns, seed: FollmerClassifier("linear", random_state=seed),
    "LogisticRegression": lambda columns, seed: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "MLP": lambda columns, seed: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
    "HistGradientBoosting": lambda columns, seed: HistGradientBoostingClassifier(random_state=seed),
}


def divided(name: str, split: int) -> Dataset:
    """Training and test rows of a split."""
    if name in UCI:
        whole = datasets.load(f"uci/{name}")
        return whole.split(split % len(whole.splits))
    x, y = BUNDLED[name](return_X_y=True)
    stratify = y if name in CLASSES else None
    parts = train_test_split(x, y, test_size=0.1, random_state=split, stratify=stratify)
    x, x_test, y, y_test = parts
    return Dataset(x, y, x_test, y_test)


def measured(name: str, split: int, method: str, data: Dataset) -> NetworkRecord:
    """The scores of one method on one split; what fails says so in its record."""
    record = NetworkRecord(name, split, method)
    if method == "GaussianProcess" and len(data.x) > _MOST_ROWS:
        return record._replace(note=f"not tried on more than {_MOST_ROWS} rows")
    has_classes = name in CLASSES
    make = (CLASSIFIERS if has_classes else REGRESSORS)[method]
    model = make(data.x.shape[1], split)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # What does not converge within its default budget is part of the default.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(data.x, data.y)
            scores = (_label_scores if has_classes else _number_scores)(model, data)
    except Exception as error:
        return record._replace(note=f"failed: {in_a_line(error)}")
    seconds = time.perf_counter() - began
    verdict = getattr(model, "verdict_", None)
    words = "" if verdict is None else verdict.value
    return record._replace(**scores, seconds=seconds, verdict=words)


def _number_scores(model: Any, data: Dataset) -> dict[str, Any]:
    assert data.y_test is not None
    if isinstance(model, FollmerRegressor):
        density = model.log_predictive_density(data.x_test, data.y_test)
        mean = model.predict(data.x_test)
    else:
        mean, sd = _mean_and_sd(model, data)
        density = norm.logpdf(data.y_test, mean, sd)
    error = float(np.sqrt(np.mean((mean - data.y_test) ** 2)))
    return {"lpd": float(np.mean(density)), "error": error}


def _mean_and_sd(model: Any, data: Dataset) -> tuple[np.ndarray, Any]:
    """The model's own standard deviation where it has one, else that of left-out residuals."""
    last = model[-1] if hasattr(model, "steps") else model
    if isinstance(last, BayesianRidge | GaussianProcessRegressor):
        return model.predict(data.x_test, return_std=True)
    left_out = cross_val_predict(model, data.x, data.y, cv=_FOLDS)
    return model.predict(data.x_test), float(np.sqrt(np.mean((left_out - data.y) ** 2)))


def _label_scores(model: Any, data: Dataset) -> dict[str, Any]:
    assert data.y_test is not None
    probabilities = np.asarray(model.predict_proba(data.x_test), float)
    places = np.searchsorted(model.classes_, data.y_test)
    seen = probabilities[np.arange(len(places)), places]
    wrong = float(np.mean(probabilities.argmax(axis=1) != places))
    return {"lpd": float(np.mean(np.log(np.maximum(seen, np.finfo(float).eps)))), "error": wrong}


def table(records: Sequence[NetworkRecord]) -> str:
    """Means over splits, and how far each is behind the best in log predictive density."""
    rows, tried, close = [], collections.Counter[str](), collections.Counter[str]()
    for name in dict.fromkeys(record.set for record in records):
        own = [record for record in records if record.set == name]
        densities = {
            method: np.array([one.lpd for one in own if one.method == method], float)
            for method in dict.fromkeys(one.method for one in own)
        }
        best = max(densities, key=lambda method: np.nan_to_num(densities[method].mean(), nan=-1e9))
        for method in densities:
            chosen = [one for one in own if one.method == method]
            behind = densities[best] - densities[method]
            rows.append(_row(name, method, chosen, behind))
            tried[method] += 1
            close[method] += is_close(behind)
    counted = [
        {"method": method, "best, or within a standard error of it": f"{close[method]} of {count}"}
        for method, count in tried.items()
    ]
    left = {"set", "method", "verdicts", "note"}
    return f"{markdown(rows, left=left)}\n\n{markdown(counted, left=left)}"


def is_close(behind: np.ndarray) -> bool:
    """Whether a method is the best, or behind it by a standard error over splits at most."""
    if np.isnan(behind).any():
        return False
    error = behind.std(ddof=1) / np.sqrt(len(behind)) if len(behind) > 1 else 0.0
    return bool(behind.mean() <= error)


def _row(
    name: str, method: str, records: Sequence[NetworkRecord], behind: np.ndarray
) -> dict[str, str]:
    verdicts = sorted({one.verdict for one in records if one.verdict})
    return {
        "set": name,
        "method": method,
        "splits": str(len(records)),
        "LPD": _mean([one.lpd for one in records]),
        "behind the best": _mean(behind),
        "RMSE / wrong": _mean([one.error for one in records]),
        "seconds": _mean([one.seconds for one in records], digits=1, error=False),
        "verdicts": ", ".join(verdicts),
        "note": "; ".join(sorted({one.note for one in records if one.note})),
    }


def _mean(values: Any, digits: int = 3, error: bool = True) -> str:
    known = np.array([value for value in values if value is not None], float)
    if len(known) == 0 or np.isnan(known).any():
        return ""
    spread = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 and error else None
    return f"{known.mean():.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    options.sets = options.sets or list(SETS)
    known_names("data set", options.sets, SETS)
    measured_on = machine(_command(options))
    records = stored(options.out, measured_on["commit"]) if options.resume else []
    done = {(one.split, one.set) for one in records}
    for split in range(_FIRST, _FIRST + options.splits):
        for name in options.sets:
            if (split, name) in done:
                continue
            data = divided(name, split)
            for method in CLASSIFIERS if name in CLASSES else REGRESSORS:
                if options.methods is None or method in options.methods:
                    records.append(measured(name, split, method, data))
                    print(*records[-1], sep="  ", file=sys.stderr, flush=True)
            # After every set, so that what was measured is kept.
            records.sort(key=lambda one: options.sets.index(one.set))
            options.out.write_text(as_json(measured_on, records) + "\n")
    print(f"{header(measured_on)}\n\n{table(records)}")


def _command(options: argparse.Namespace) -> str:
    """The command that makes the same records, wherever they are written, in one run or more."""
    parts = ["python", "-m", "benchmarks.estimators"]
    parts += [] if options.sets == list(SETS) else options.sets
    parts += ["--splits", str(options.splits)]
    return shlex.join(parts + (["--methods", *options.methods] if options.methods else []))


def stored(path: Path, commit: str) -> list[NetworkRecord]:
    """The records of an earlier run of the same commit; none where there is no file."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    if found["machine"]["commit"] != commit:
        raise SystemExit(
            f"{path} was measured at {found['machine']['commit']}, not at {commit}: records of two "
            "commits do not belong into one table. Run without --resume."
        )
    return [NetworkRecord(**one) for one in found["results"]]


if __name__ == "__main__":
    main()
