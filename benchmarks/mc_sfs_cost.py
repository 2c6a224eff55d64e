"""What draws cost: MC-SFS's seconds against its steps × samples, beside N-SFS's.

    python -m benchmarks.mc_sfs_cost

The paper's linear regression in 64 dimensions. MC-SFS trains nothing and evaluates the density
steps × samples times for every draw; N-SFS trains once, and a draw evaluates its network once per
step. Compilation is left out of the draws, not of the fits. Written to
docs/results/bench/mc_sfs_cost.json; drawn by docs/figures/benchmarks.py.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import follmer
from benchmarks.page import RECORDS
from follmer.paper.experiments import linear_regression
from follmer.posterior.posterior import Posterior
from follmer.tools.tables import machine

DIM, NUM_DRAWS = 64, 1000
_STEPS, _SAMPLES = (10, 32, 100, 200), (10, 100, 1000)
_REPEATS = 3


def seconds_of_draws(posterior: Posterior, num_draws: int, num_steps: int | None = None) -> float:
    """The median over repeats, after one that compiles."""
    told = []
    for repeat in range(1 + _REPEATS):
        began = time.perf_counter()
        posterior.sample(num_draws, key=jax.random.key(repeat), num_steps=num_steps)
        told.append(time.perf_counter() - began)
    return float(np.median(told[1:]))


def mc_sfs(target: follmer.Target) -> list[dict[str, Any]]:
    """Seconds of so many draws for each number of steps and samples, from few of them."""
    found = []
    for steps in _STEPS:
        for samples in _SAMPLES:
            posterior = follmer.mc_sfs(target, num_samples=samples, num_steps=steps)
            few = max(8, min(NUM_DRAWS, 200_000 // (steps * samples)))
            seconds = seconds_of_draws(posterior, few) * NUM_DRAWS / few
            found.append({"method": "mc_sfs", "steps": steps, "samples": samples, "draws": seconds})
            print(f"MC-SFS, {steps} × {samples}: {seconds:.2f} s", flush=True)
    return found


def n_sfs(name: str, fitted: Callable[[], Posterior], steps: int | None) -> dict[str, Any]:
    """Seconds of the fit and of the draws."""
    began = time.perf_counter()
    posterior = fitted()
    fit = time.perf_counter() - began
    draws = seconds_of_draws(posterior, NUM_DRAWS, steps)
    print(f"N-SFS, {name}: fit {fit:.1f} s, draws {draws:.3f} s", flush=True)
    return {"method": "n_sfs", "preset": name, "fit": fit, "draws": draws}


def main() -> None:
    target = linear_regression.linear_regression(linear_regression.regression(DIM, 0))
    found = mc_sfs(target)
    for preset in ("auto", "paper"):
        method = linear_regression.methods(preset, tiny=False)["n_sfs"]

        def fitted(method: Any = method) -> Posterior:
            return method.run(target, jax.random.key(0), progress=False)

        found.append(n_sfs(preset, fitted, method.num_steps))
    measured_on = machine("python -m benchmarks.mc_sfs_cost")
    stored = {"machine": measured_on, "dim": DIM, "num_draws": NUM_DRAWS, "results": found}
    (RECORDS / "mc_sfs_cost.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
