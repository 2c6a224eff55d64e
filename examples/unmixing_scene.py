"""Unmixing a small scene: a share of three materials for every pixel, one noise for all.

The simulated image has 200 bands per pixel; the shares of a pixel are its local variable. The exact
posterior, by quadrature pixel by pixel, is the judge.
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots
from follmer.paper.experiments.hyperspectral import simulated, unmixing_target
from follmer.paper.experiments.quadrature import exact_posterior


def main() -> Figure:
    fit_key, draw_key = jax.random.split(jax.random.key(0))
    scene = simulated(seed=0, shape=(8, 8))
    posterior = follmer.fit(unmixing_target(scene), key=fit_key, num_iterations=600)
    draws = np.asarray(posterior.resample(400, key=draw_key)["local"]["abundances"])
    mean, (low, high) = draws.mean(axis=0), np.quantile(draws, [0.05, 0.95], axis=0)
    exact, truth = exact_posterior(scene), scene.abundances
    assert truth is not None  # the scene is simulated
    print(f"{len(truth)} pixels, verdict: {posterior.verdict and posterior.verdict.value}")
    for name, found, lower, upper in (
        ("N-SFS", mean, low, high),
        ("exact", exact.mean, exact.lower, exact.upper),
    ):
        error = np.sqrt(np.mean((found - truth) ** 2))
        held = np.mean((lower <= truth) & (truth <= upper))
        print(f"{name}: shares off by {error:.4f} (RMS), 90 % intervals hold {held:.0%} of them")
    print(f"N-SFS from exact: {np.sqrt(np.mean((mean - exact.mean) ** 2)):.4f} (RMS)")
    figure, panels = plots.panels(["True shares", "Posterior means"])
    for axes, shares in zip(panels, (truth, mean), strict=True):
        plots.composite(axes, shares.reshape(*scene.shape, 3))
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("unmixing_scene.svg"))
