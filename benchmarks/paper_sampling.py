"""How the paper preset's draws of the linear regressions depend on the way they are made.

    python -m benchmarks.paper_sampling [--dims 32 128] [--seeds 1]

One drift for each dimension and seed, trained as by `follmer reproduce linear_regression --preset
paper`; then 100 draws in 20 steps (those of training) or 143 (the authors'), by BatchNorm's kept
statistics, as here, or by those of the draws themselves, as the authors do. Printed are errors of
the predictive mean and sd. Written to docs/results/bench/paper_sampling.json.
"""

import argparse
import json
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from benchmarks.page import RECORDS
from follmer.paper.experiments import linear_regression
from follmer.paper.experiments.running import keys_of
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import Flow
from follmer.tools.programs import compiled
from follmer.tools.tables import machine

_AUTHORS_STEPS = 143


def in_training_mode(
    posterior: Posterior, count: int, num_steps: int, key: PRNGKeyArray
) -> np.ndarray:
    """So many draws that are normalised by one another's statistics."""
    flow = posterior.sampler
    assert isinstance(flow, Flow)
    return np.asarray(_together(flow.process, flow.parameters, count, num_steps, key), float)


@compiled
def _together(
    process: Any, parameters: Any, count: int, num_steps: int, key: PRNGKeyArray
) -> Float[Array, "draws dim"]:
    problem = process.problem(None, count)
    problem = problem._replace(diffusion=process.diffusion(num_steps, None))
    return problem.simulate(process.drift_at(parameters, None, inference=False), key).end


def errors(dim: int, seed: int) -> dict[str, Any]:
    """The errors by each way to draw."""
    known = linear_regression.regression(dim, seed)
    method = linear_regression.methods("paper", tiny=False)["n_sfs"]
    fit_key, _, draw_key = keys_of(seed)
    posterior = method.run(linear_regression.linear_regression(known), fit_key, progress=False)
    found: dict[str, Any] = {"dim": dim, "seed": seed}
    for steps in (method.num_steps or 0, _AUTHORS_STEPS):
        kept = posterior.sample(linear_regression.NUM_DRAWS, key=draw_key, num_steps=steps)
        own = in_training_mode(posterior, linear_regression.NUM_DRAWS, steps, draw_key)
        ways = {"kept": kept, "own": own}
        for name, draws in ways.items():
            found[f"{name}_{steps}"] = list(map(float, known.errors(np.asarray(draws, float))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    found = []
    for dim in chosen.dims:
        for seed in range(chosen.seeds):
            found.append(errors(dim, seed))
            told = ", ".join(
                f"{name} {value[0]:.2f} {value[1]:.2f}"
                for name, value in found[-1].items()
                if isinstance(value, list)
            )
            print(f"d = {dim}, seed {seed}: {told}", flush=True)
    command = f"--dims {' '.join(map(str, chosen.dims))} --seeds {chosen.seeds}"
    measured_on = machine(f"python -m benchmarks.paper_sampling {command}")
    stored = {"machine": measured_on, "results": found}
    (RECORDS / "paper_sampling.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
