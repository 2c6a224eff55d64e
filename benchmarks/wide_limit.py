"""The step function's posterior where hidden layers are infinitely wide: a Gaussian process.

    python -m benchmarks.wide_limit

Its kernel is known (Cho & Saul 2009; Lee et al. 2018, arXiv:1711.00165), so its predictions are
exact: what a sampler of the network of 100 units in each layer should come near to. Written to
docs/results/bench/wide_limit.json.
"""

import json

import numpy as np

from benchmarks.page import RECORDS
from follmer.paper.experiments import step_function
from follmer.tools.tables import machine

_VARIANCE, _WIDTH, _HIDDEN_LAYERS = 0.1, 100, 2
_SEEDS = 5


def kernel(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Covariances of the outputs at x and z under the prior, all weights of one variance."""
    inner = _VARIANCE * (np.outer(x, z) + 1.0)
    own = [_VARIANCE * (one**2 + 1.0) for one in (x, z)]
    for _ in range(_HIDDEN_LAYERS):
        scale = np.sqrt(np.outer(*own))
        cosine = np.clip(inner / scale, -1.0, 1.0)
        angle = np.arccos(cosine)
        both = scale * (np.sin(angle) + (np.pi - angle) * cosine) / (2.0 * np.pi)
        inner = _VARIANCE * (_WIDTH * both + 1.0)
        own = [_VARIANCE * (_WIDTH * one / 2.0 + 1.0) for one in own]
    return inner


def scores(seed: int) -> dict[str, float]:
    """Those of the experiment that a Gaussian process has in closed form."""
    step = step_function.data(seed)
    noise = step_function.NOISE_SD**2
    cross = kernel(step.x_test, step.x)
    solved = np.linalg.solve(kernel(step.x, step.x) + noise * np.eye(len(step.x)), cross.T)
    squared = (step.y @ solved - step.y_test) ** 2
    variance = np.diag(kernel(step.x_test, step.x_test) - cross @ solved) + noise
    density = -0.5 * (squared / variance + np.log(2.0 * np.pi * variance))
    inside = np.abs(step.x_test) <= np.abs(step.x).max()
    return {
        "mse": float(np.mean(squared)),
        "density inside": float(np.mean(density[inside])),
        "density outside": float(np.mean(density[~inside])),
    }


def main() -> None:
    """A line for each seed, and their means."""
    found = [scores(seed) for seed in range(_SEEDS)]
    mean = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    for name, one in [*enumerate(found), ("mean", mean)]:
        print(f"{name!s:<5}", "  ".join(f"{key} {value:.3f}" for key, value in one.items()))
    stored = {"machine": machine("python -m benchmarks.wide_limit"), "results": found}
    (RECORDS / "wide_limit.json").write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
