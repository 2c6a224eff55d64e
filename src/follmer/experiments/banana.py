"""A network on the banana set: two overlapping classes in the plane."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from follmer import datasets
from follmer.baselines import PolynomialDecay
from follmer.experiments.classification import judged
from follmer.experiments.experiment import Case, Method, baseline, n_sfs
from follmer.experiments.networks import layers, relu_network
from follmer.targets import from_network, priors


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
    batch_size = 32 if tiny else 512
    authors = {"gamma": 0.05**2, "batch_size": batch_size, "num_iterations": 50 * 10}
    return {
        **n_sfs(preset, tiny, num_steps=20, **authors),
        **baseline(
            "sgld",
            tiny,
            step_size=PolynomialDecay(1e-3, b=1000.0),
            num_iterations=30_000,
            batch_size=batch_size,
        ),
        **baseline("sgd", tiny, batch_size=batch_size),
    }
