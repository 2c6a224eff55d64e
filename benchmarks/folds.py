"""Five-fold cross-validation of a default regressor, in units of one fit.

    python -m benchmarks.folds [--rows 1000] [--columns 10] [--model network]

One fit with everything to compile, the same again with nothing to compile, and `cross_val_score`
from the start. Folds of one shape share their programs, so only the first should compile: the bar
is twice the first fit's time and four times the second's. Prints seconds, and the programs that JAX
compiled in each.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.model_selection import cross_val_score

from follmer.sklearn import FollmerRegressor

_EVENT = "/jax/core/compile/backend_compile_duration"


class Measured(NamedTuple):
    """What one call took."""

    seconds: float
    processor_seconds: float
    programs: int


def measured(function: Callable[[], Any], compilations: list[float]) -> Measured:
    before, began, processor = len(compilations), time.perf_counter(), time.process_time()
    function()
    seconds = time.perf_counter() - began
    return Measured(seconds, time.process_time() - processor, len(compilations) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--model", default="network", choices=["network", "linear"])
    options = parser.parse_args()
    compilations: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == _EVENT:
            compilations.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(options.rows, options.columns))
    y = np.sin(x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=options.rows)
    model = FollmerRegressor(options.model, random_state=0)
    found = {"one fit": measured(lambda: model.fit(x, y), compilations)}
    found["again"] = measured(lambda: model.fit(x, y), compilations)
    jax.clear_caches()
    found["five folds"] = measured(lambda: cross_val_score(model, x, y, cv=5), compilations)
    for name, one in found.items():
        print(
            f"{name:<11}{one.seconds:8.1f} s {one.processor_seconds:8.1f} s of processor"
            f" {one.programs:5d} programs"
        )
    first, again, folds = found.values()
    for what, place in (("seconds", 0), ("processor seconds", 1)):
        bar = 2.0 * first[place] + 4.0 * again[place]
        print(f"{what}: {folds[place]:.1f}, bar {bar:.1f}")


if __name__ == "__main__":
    main()
