"""Logistic regression on a9a with a Laplace prior: census features, 124 parameters."""

import functools
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer import datasets
from follmer.baselines import PolynomialDecay
from follmer.paper.experiments import figures
from follmer.paper.experiments.classification import calibration, judged
from follmer.paper.experiments.experiment import (
    Case,
    Method,
    Picture,
    Record,
    Trial,
    authors_sgld,
    baseline,
    n_sfs,
)
from follmer.targets import Target, from_network, priors


def logits(w: Float[Array, " dim"], x: Float[Array, "rows dim"]) -> Float[Array, " rows"]:
    return x @ w


def target(a9a: datasets.Dataset | None = None, num_rows: int | None = None) -> Target:
    """The training rows (or the first of them) and a bias column."""
    x, y, *_ = datasets.load("a9a") if a9a is None else a9a
    assert y is not None
    return from_network(
        logits,
        params=jnp.zeros(x.shape[1] + 1),
        data=(_with_bias(x[:num_rows]), y[:num_rows]),
        likelihood="bernoulli",
        prior=priors.Laplace(1.0),
    )


def held_out(a9a: datasets.Dataset | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The test rows with their bias column, and their labels."""
    _, _, x, y, _ = datasets.load("a9a") if a9a is None else a9a
    assert x is not None
    assert y is not None
    return _with_bias(x), y


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    a9a = datasets.load("a9a")
    x, labels = held_out(a9a)
    num_rows = 200 if tiny else None
    x, labels = x[:num_rows], labels[:num_rows]
    judge = functools.partial(judged, x=x, labels=labels)
    yield Case("", target(a9a, num_rows), judge, (x, labels))


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    sgld = authors_sgld(tiny, a=1e-4, b=1.0, num_iterations=300, batch_size=32)
    if preset == "auto":
        # The largest curvature is about 5e4: steps begin at 2e-5.
        decay = PolynomialDecay(1e-3, b=1000.0)
        sgld = baseline("sgld", tiny, step_size=decay, num_iterations=30_000, batch_size=500)
    return {
        **n_sfs(preset, tiny, num_steps=100, gamma=0.2**2),
        **sgld,
        **baseline("sgd", tiny, batch_size=500),
        **baseline("nuts", tiny, num_chains=1, num_warmup=300, num_samples=500),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    yield from calibration(trials, *trials[0].case.data)
    yield from figures.training(preset, trials)


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x), x.dtype)])
