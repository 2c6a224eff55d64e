"""Independent component analysis of ten MEG channels."""

import functools
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from follmer import datasets
from follmer.baselines import PolynomialDecay
from follmer.paper.experiments import figures
from follmer.paper.experiments.experiment import (
    Case,
    Draws,
    Method,
    Picture,
    Record,
    Trial,
    authors_sgld,
    baseline,
    n_sfs,
)
from follmer.targets import Target

_TRAIN = 0.8


def data() -> tuple[np.ndarray, np.ndarray]:
    """The first 80 % of time for training, the rest for testing, standardised by the former."""
    x = datasets.load("meg").x
    train, test = np.split(x, [int(_TRAIN * len(x))])
    mean, sd = train.mean(axis=0), train.std(axis=0)
    return (train - mean) / sd, (test - mean) / sd


def log_likelihood(
    w: Float[Array, "dim dim"], x: Float[Array, "rows dim"]
) -> Float[Array, " rows"]:
    """ln |det W| − Σ_i ln 2cosh²(w_iᵀx): sources of density 1/(2cosh²), normalised."""
    scores = x @ w
    # ln cosh without overflow.
    log_cosh = jnp.logaddexp(scores, -scores) - np.log(2.0)
    return jnp.linalg.slogdet(w)[1] - jnp.sum(2.0 * log_cosh + np.log(2.0), axis=1)


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    train, test = data()
    if tiny:
        train, test = train[:200, :2], test[:200, :2]
    size = train.shape[1]
    target = Target(
        log_prior=lambda w: jnp.sum(norm.logpdf(w)),
        log_likelihood=log_likelihood,
        data=jnp.asarray(train),
        like=jnp.zeros((size, size)),
    )
    yield Case("", target, functools.partial(judged, test=test))


def judged(draws: Draws, test: np.ndarray) -> dict[str, float]:
    """The authors' number leaves the constants out: it is larger by ln 2 for each channel."""
    matrices = draws.sample(draws.method.num_samples)
    rows = jnp.asarray(test)
    terms = [np.asarray(log_likelihood(w, rows), float) for w in matrices]
    normalised = float(np.mean(terms))
    density = float(np.mean(np.logaddexp.reduce(np.stack(terms)) - np.log(len(terms))))
    return {
        "gibbs_log_likelihood": normalised + test.shape[1] * np.log(2.0),
        "gibbs_log_likelihood_normalised": normalised,
        "log_predictive_density": density,
    }


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    # The printed batch is 32; the authors' runs have 10.
    sgld = authors_sgld(tiny, a=1e-4, b=1.0, num_iterations=2832, batch_size=10)
    if preset == "auto":
        decay = PolynomialDecay(1e-3, b=1000.0)
        sgld = baseline("sgld", tiny, step_size=decay, num_iterations=30_000, batch_size=10)
    return {
        **n_sfs(preset, tiny, num_steps=20, gamma=0.01**2, batch_size=10, num_iterations=2832),
        **sgld,
        **baseline("sgd", tiny, batch_size=100),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    yield from figures.training(preset, trials)
