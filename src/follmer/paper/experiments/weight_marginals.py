"""How wide draws of LeNet5's weights are: N-SFS beside chains, SGLD and points, on MNIST."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from follmer import plots
from follmer.paper.experiments import figures, image_plots, mnist
from follmer.paper.experiments.experiment import Case, Draws, Method, Picture, Record, Trial
from follmer.paper.experiments.images import along_chains, digits, log_posteriors
from follmer.targets import Target

# Draws that are looked at, and the training rows that tell ln p.
_DRAWS, _ROWS = 100, 10_000
# The pair of the figure: two weights of the first convolution.
_PAIR = (0, 1)
_ROWS_SHOWN = ("n_sfs", "n_sfs_stl", "ensemble", "points", "sgld")


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    target = digits(tiny).target
    yield Case("", target, functools.partial(judged, target=target))


def judged(draws: Draws, target: Target) -> dict[str, float]:
    """Spread of single weights, and of the log posterior."""
    x = _flat(draws)
    logs = log_posteriors(target, x, _ROWS)
    sd = x.std(axis=0)
    return {
        "weight_sd": float(np.median(sd)),
        "weight_sd_inside": _inside_chains(draws),
        "log_posterior": float(np.mean(logs)),
        "log_posterior_sd": float(np.std(logs)),
    }


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    return {name: how for name, how in mnist.methods(preset, tiny).items() if name in _ROWS_SHOWN}


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    flats = {trial.method: _flat(trial.draws) for trial in trials}
    target = trials[0].case.target
    assert isinstance(target, Target)
    figure, axes = plots.figure()
    image_plots.histograms(
        axes[0, 0],
        {name: log_posteriors(target, x, _ROWS) for name, x in flats.items()},
        label="log posterior density, without its constant",
    )
    yield Picture(
        "log_posterior",
        "Log posterior values",
        f"Of {_DRAWS} draws, as {_ROWS} training images tell it. Typical draws of a posterior lie "
        "about half the number of weights below the mode: draws near a point estimate are too "
        "high, and none of the methods is known to have reached equilibrium.",
        figure,
    )
    figure, axes = plots.figure()
    image_plots.pairs(axes[0, 0], {name: x[:, _PAIR] for name, x in flats.items()})
    yield Picture(
        "pair",
        "A pair of weights",
        "Two weights of the first convolution. Draws of several chains or points stand in as many "
        "places, for exchanging two filters changes nothing; those of one SGLD chain stay in one."
        + _wider({trial.method: trial.metrics for trial in trials}),
        figure,
    )
    yield from along_chains(trials)
    yield from figures.training(preset, trials)


def _wider(metrics: Mapping[str, Mapping[str, float]]) -> str:
    """How much wider the draws of N-SFS are than SGLD's, in words; nothing where one is missing."""
    if not {"n_sfs", "sgld"} <= metrics.keys():
        return ""
    whole, inside = (
        metrics["n_sfs"][name] / metrics["sgld"]["weight_sd"]
        for name in ("weight_sd", "weight_sd_inside")
    )
    return (
        f" The median sd of a weight is {whole:.1f} times SGLD's for all draws of N-SFS, and "
        f"{inside:.1f} times inside the chains that it is laid along."
    )


def _flat(draws: Draws) -> Float[np.ndarray, "draws dim"]:
    count = min(_DRAWS, draws.method.num_samples)
    return np.asarray(draws.posterior.flat_sample(count, key=draws.key)[0], float)


def _inside_chains(draws: Draws) -> float:
    """The median over weights of the sd inside a chain; that of all draws where there is one."""
    stored = getattr(draws.posterior.sampler, "draws", None)
    inside = _flat(draws)[None] if stored is None else np.asarray(stored)
    return float(np.median(np.sqrt(np.mean(inside.var(axis=1), axis=0))))
