"""Which of the paper's two far modes the paper preset's N-SFS settles on, seed by seed.

    python -m benchmarks.mixture_modes [--seeds 10] [--iterations 300]

The first iterations of `follmer reproduce gaussian_mixture --preset paper --methods n_sfs`, with
its keys: by then most paths have chosen their mode. Draws are made by BatchNorm's kept statistics,
as there, and by those of the draws themselves, 128 at a time, as the authors do. Written to
docs/results/bench/mixture_modes.json.
"""

import argparse
import json
import time
from typing import Any

import jax
import numpy as np

from benchmarks.page import RECORDS
from benchmarks.paper_sampling import in_training_mode
from follmer.paper.experiments import gaussian_mixture
from follmer.paper.experiments.running import keys_of
from follmer.tools.tables import machine

_NUM_DRAWS, _TOGETHER = 2048, 128
# The steps of training: more of them meet statistics of BatchNorm that belong to others.
_STEPS = 20


def shares(seed: int, iterations: int) -> dict[str, Any]:
    """The draws' share in each mode after so many iterations, and their ELBO."""
    usual = gaussian_mixture.methods("paper", tiny=False)["n_sfs"]
    method = usual.given({"num_iterations": iterations, "progress": False})
    fit_key, _, draw_key = keys_of(seed)
    modes = gaussian_mixture.TWO_MODES
    began = time.process_time()
    posterior = method.run(gaussian_mixture.mixture(modes), fit_key)
    seconds = time.process_time() - began
    kept = np.asarray(posterior.sample(_NUM_DRAWS, key=draw_key, num_steps=_STEPS), float)
    keys = jax.random.split(draw_key, _NUM_DRAWS // _TOGETHER)
    own = [in_training_mode(posterior, _TOGETHER, _STEPS, key) for key in keys]
    return {
        "seed": seed,
        "shares": gaussian_mixture.mode_masses(kept, modes).tolist(),
        "shares_in_training_mode": gaussian_mixture.mode_masses(
            np.concatenate(own), modes
        ).tolist(),
        "elbo": float(posterior.history["evaluation_elbo"][-1]),
        "processor_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=300)
    chosen = parser.parse_args()
    found = []
    for seed in range(chosen.seeds):
        found.append(shares(seed, chosen.iterations))
        told = ", ".join(f"{share:.2f}" for share in found[-1]["shares"])
        print(f"seed {seed}: {told}", flush=True)
    command = f"--seeds {chosen.seeds} --iterations {chosen.iterations}"
    measured_on = machine(f"python -m benchmarks.mixture_modes {command}")
    stored = {"machine": measured_on, "results": found}
    (RECORDS / "mixture_modes.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
