"""A network on the banana set: two overlapping classes in the plane."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from follmer import datasets, plots
from follmer.baselines import PolynomialDecay
from follmer.paper.experiments import figures
from follmer.paper.experiments.classification import calibration, judged
from follmer.paper.experiments.experiment import (
    Case,
    Method,
    Picture,
    Record,
    Trial,
    baseline,
    n_sfs,
)
from follmer.paper.experiments.networks import layers, relu_network
from follmer.targets import from_network, priors

_GRID = 60  # points along each side of the figure's grid


class Split(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def data(seed: int) -> Split:
    """All points, nine tenths for training."""
    x, y, *_ = datasets.load("banana")
    assert y is not None
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = np.split(order, [len(order) * 9 // 10])
    return Split(x[train], y[train], x[test], y[test])


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    split = data(seed)
    width = 8 if tiny else 100
    target = from_network(
        relu_network,
        params=layers([2, width, width, 2], jax.random.key(seed)),
        data=(split.x[:200], split.y[:200]) if tiny else (split.x, split.y),
        likelihood="categorical",
        prior=priors.Normal(1.0),
    )
    yield Case("", target, functools.partial(judged, x=split.x_test, labels=split.y_test), split)


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    authors = {"gamma": 0.05**2, "batch_size": 512, "num_iterations": 50 * 10}
    return {
        **n_sfs(preset, tiny, num_steps=20, learning_rate=2e-5, **authors),
        **baseline(
            "sgld",
            tiny,
            step_size=PolynomialDecay(1e-3, b=1000.0),
            num_iterations=30_000,
            batch_size=512,
        ),
        **baseline("sgd", tiny, batch_size=512),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    split = trials[0].case.data
    # Wider than the data, to see what is said where there are none.
    low, high = split.x.min(axis=0) - 1.5, split.x.max(axis=0) + 1.5
    first, second = np.linspace(low, high, _GRID).T
    points = np.stack(np.meshgrid(first, second), -1).reshape(-1, 2)
    figure, axes = figures.panels(trials)
    for panel, trial in zip(axes, trials, strict=True):
        probability = np.asarray(trial.draws.predict(points).probabilities, float)[:, 1]
        plots.class_contours(
            panel, first, second, probability.reshape(_GRID, _GRID), split.x_test, split.y_test
        )
    yield Picture(
        "contours",
        "Predictive probabilities",
        "The probability of class 1 over the plane, with the test points of both classes; the "
        "line is where both are as likely. Colours should pale where the classes overlap and far "
        "from the data, where a method that is still sure claims too much.",
        figure,
    )
    yield from calibration(trials, split.x_test, split.y_test)
    yield from figures.training(preset, trials)
