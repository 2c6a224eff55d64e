"""The paper's own numbers, under the names that metrics have here."""

import functools
import importlib.resources
import re
import tomllib
from decimal import Decimal
from typing import Any, NamedTuple

_EXPERIMENTS = {"ica": "ica_meg"}
# Cases that the paper's tables have as data of their own.
_CASES = {("mnist", "rotated by up to 30°"): "rotated_mnist"}
_METRICS = {"log_likelihood": "gibbs_log_likelihood"}


class Estimate(NamedTuple):
    """A mean over seeds; sd is the sample standard deviation, None where there is none."""

    mean: float
    sd: float | None = None
    seeds: int | None = None
    decimals: int | None = None  # as many as were printed


def published(experiment: str, case: str) -> dict[str, dict[str, Estimate]]:
    """The paper's metrics by method; empty where it has none for that experiment and case."""
    name = _CASES.get((experiment, case)) or _EXPERIMENTS.get(experiment, experiment)
    content = dict(_content().get(name, {}))
    dims = content.pop("dims", None)
    if dims is None:
        return {
            method: {_METRICS.get(name, name): _printed(*pair) for name, pair in metrics.items()}
            for method, metrics in content.items()
        }
    place = _place(case, dims)
    if place is None:
        return {}
    return {
        method: {name: _printed(means[place]) for name, means in metrics.items()}
        for method, metrics in content.items()
    }


def _printed(mean: Decimal, sd: Decimal | None = None) -> Estimate:
    decimals = -int(mean.as_tuple().exponent)
    return Estimate(float(mean), None if sd is None else float(sd), decimals=decimals)


def _place(case: str, dims: list[int]) -> int | None:
    """Which of the dimensions a case such as "d = 32" means."""
    found = re.fullmatch(r"d\s*=\s*(\d+)", case.strip())
    return dims.index(int(found[1])) if found and int(found[1]) in dims else None


@functools.cache
def _content() -> dict[str, dict[str, Any]]:
    file = importlib.resources.files("follmer.paper.report") / "paper_results.toml"
    # Decimals remember the zeros at their end.
    return tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
