"""Unmixing a small scene: a share of three materials for every pixel, one noise for all.

The simulated image has 200 bands per pixel; the shares of a pixel are its local variable.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots
from follmer.paper.experiments.hyperspectral import simulated, unmixing_target


def main() -> Figure:
    fit_key, draw_key = jax.random.split(jax.random.key(0))
    scene = simulated(seed=0, shape=(8, 8))
    posterior = follmer.fit(unmixing_target(scene), key=fit_key)
    draws = np.asarray(posterior.resample(400, key=draw_key)["local"]["abundances"])
    mean, (low, high) = draws.mean(axis=0), np.quantile(draws, [0.05, 0.95], axis=0)
    truth = scene.abundances
    assert truth is not None  # the scene is simulated
    error = np.sqrt(np.mean((mean - truth) ** 2))
    print(f"{len(truth)} pixels, verdict: {posterior.verdict and posterior.verdict.value}")
    print(f"root mean squared error of a share: {error:.4f}")
    print(f"90 % intervals hold the truth in {np.mean((low <= truth) & (truth <= high)):.0%}")
    figure, panels = plots.panels(["True shares", "Posterior means"])
    for axes, shares in zip(panels, (truth, mean), strict=True):
        plots.composite(axes, shares.reshape(*scene.shape, 3))
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("unmixing_scene.svg"))
