"""Narrow modes in the plane: the paper preset misses some of them, the default does not."""

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from follmer import plots
from follmer.paper.experiments import figures
from follmer.paper.experiments.experiment import (
    Case,
    Draws,
    Method,
    Picture,
    Record,
    Trial,
    baseline,
    n_sfs,
)
from follmer.targets import Target

TWO_MODES = np.array([[-4.0, 0.0], [4.0, 0.0]])
FOUR_MODES = np.array([[-4.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [4.0, 0.0]])
# A mode is found with this share of its weight.
FOUND = 0.25
# Draws that are judged; fewer where each takes as long as a thousand others.
_NUM_DRAWS, _FEWER_DRAWS = 10_000, 1000
_PANEL = (5.2, 2.8)  # inches: as wide and low as the part of the plane that is shown


def mixture(means: np.ndarray, variance: float = 0.05) -> Target:
    """Equal normals of one variance, normalised."""
    centres = jnp.asarray(means)

    def log_density(x: Float[Array, " dim"]) -> Float[Array, ""]:
        terms = jnp.sum(norm.logpdf(x, centres, np.sqrt(variance)), axis=1)
        return jax.nn.logsumexp(terms) - np.log(len(means))

    return Target(log_density, like=jnp.zeros(means.shape[1]))


def mode_masses(
    draws: np.ndarray, modes: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """The draws' share in each mode's basin: the points nearer to it than to any other."""
    distances = np.stack([np.sum((draws - mode) ** 2, axis=1) for mode in modes])
    weights = np.full(len(draws), 1 / len(draws)) if weights is None else weights
    return np.bincount(np.argmin(distances, axis=0), weights, minlength=len(modes))


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    for modes in (TWO_MODES,) if tiny else (TWO_MODES, FOUR_MODES):
        judge = functools.partial(judged, modes=modes)
        yield Case(f"{len(modes)} modes", mixture(modes), judge, modes)


def judged(draws: Draws, modes: np.ndarray) -> dict[str, float]:
    """How the draws' mass is shared among the modes."""
    count = _FEWER_DRAWS if draws.method.is_timed_by_draws else _NUM_DRAWS
    masses = mode_masses(np.asarray(draws.sample(count), float), modes)
    share = 1 / len(modes)
    return {
        "modes_found": float(np.sum(masses >= FOUND * share)),
        "mode_weight_error": float(np.max(np.abs(masses - share))),
    }


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    authors = {"gamma": 0.1, "num_iterations": 5000, "num_paths": 128}
    return {
        **n_sfs(preset, tiny, num_steps=100, **authors),
        **baseline("mc_sfs", tiny, num_samples=1000, num_steps=100, gamma=1.0),
        **baseline("sgld", tiny, step_size=1e-2, num_chains=4),
        **baseline("nuts", tiny),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    first, second = np.linspace(-6.0, 6.0, 240), np.linspace(-2.5, 2.5, 100)
    grid = jnp.stack(jnp.meshgrid(first, second), -1)
    for label, own in figures.by_case(trials).items():
        log_density = jax.vmap(jax.vmap(own[0].case.target.log_density))(grid)
        figure, axes = figures.panels(own, size=_PANEL)
        for panel, trial in zip(axes, own, strict=True):
            draws = np.asarray(trial.draws.sample(1000), float)
            plots.scatter_over_contours(
                panel, draws, first, second, np.asarray(log_density), method=trial.method
            )
        yield Picture(
            f"draws_{len(own[0].case.data)}_modes",
            f"Draws, {label}",
            "A thousand draws of each method over contours of the density. Every mode should hold "
            "the same number of draws, with none between them; a mode without draws was missed.",
            figure,
        )
    yield from figures.training(preset, trials)
