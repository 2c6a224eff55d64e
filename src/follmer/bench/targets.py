"""The targets of `follmer bench`, each with what is known about it."""

import csv
import dataclasses
import functools
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.bench.dynamics import hidden_chain, lotka_volterra
from follmer.datasets.files import read
from follmer.paper.experiments import a9a, step_function
from follmer.paper.experiments.gaussian_mixture import FOUR_MODES, TWO_MODES, mixture
from follmer.paper.experiments.linear_regression import (
    DIMS,
    Regression,
    linear_regression,
    regression,
)
from follmer.targets import Target


@dataclasses.dataclass(frozen=True)
class Case:
    """A target and its truths.

    `log_evidence` is exact, or where `approximate` that of annealed runs of several seeds
    (`python -m benchmarks.reference_evidence`); `modes` are the points whose
    basins are counted, of equal weight; `regression` is there where the posterior is normal;
    `held_out` are rows and answers that the target has not seen.
    """

    build: Callable[[], Target]
    log_evidence: float | None = None
    approximate: bool = False
    modes: Callable[[], np.ndarray] | None = None
    regression: Callable[[], Regression] | None = None
    held_out: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    def true_log_evidence(self) -> float | None:
        return self.log_evidence if self.regression is None else self.regression().log_evidence()


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> Target:
    """A normal density."""
    factor = np.linalg.cholesky(covariance)
    centre, inverse = jnp.asarray(mean), jnp.asarray(np.linalg.inv(factor))
    constant = -np.sum(np.log(np.diag(factor))) - 0.5 * len(factor) * np.log(2 * np.pi)
    return Target(
        lambda x: constant - 0.5 * jnp.sum((inverse @ (x - centre)) ** 2),
        like=jnp.zeros(len(factor)),
    )


def single_gaussian(ratio: float) -> Target:
    """N(m, σ²) in one dimension with 1/σ² = `ratio`, its mean two standard deviations from 0."""
    sd = ratio**-0.5
    return gaussian(np.array([2 * sd]), np.array([[sd**2]]))


def mixed_scales(dim: int = 20) -> Target:
    """γ/σ² from 1e-4 to 400 in one target, means a few standard deviations from 0."""
    variance = 1.0 / np.geomspace(1e-4, 400.0, dim)
    mean = 2.0 * np.sqrt(variance) * np.cos(np.arange(dim))
    return gaussian(mean, np.diag(variance))


def ill_conditioned(dim: int = 20) -> Target:
    """Condition number 1e6 along directions that no coordinate shares."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, dim)))[0]
    return gaussian(np.ones(dim), (rotation * np.geomspace(1e-3, 1e3, dim)) @ rotation.T)


def _linear_regression(num_features: int) -> Target:
    return linear_regression(regression(num_features, 0))


def double_well() -> Target:
    return Target(lambda x: -(((x - 1.5) ** 2 - 2.0) ** 2), like=jnp.zeros(()))


def many_well(dim: int = 5) -> Target:
    return Target(lambda x: -jnp.sum((x**2 - 4.0) ** 2), like=jnp.zeros(dim))


def funnel(dim: int = 10) -> Target:
    def log_density(x: Float[Array, " dim"]) -> Float[Array, ""]:
        log_sd = 0.5 * x[0]
        rest = -0.5 * jnp.sum((x[1:] * jnp.exp(-log_sd)) ** 2) - (dim - 1) * (
            log_sd + 0.5 * np.log(2 * np.pi)
        )
        return stats.norm.logpdf(x[0], 0.0, 3.0) + rest

    return Target(log_density, like=jnp.zeros(dim))


def logistic(features: np.ndarray, labels: np.ndarray, prior_sd: float) -> Target:
    """Logistic regression on standardised columns and an intercept, normal prior on all."""
    scale = features.std(axis=0)
    columns = (features - features.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    rows = np.column_stack([columns, np.ones(len(columns))])
    return Target(
        log_prior=lambda w: jnp.sum(stats.norm.logpdf(w, 0.0, prior_sd)),
        log_likelihood=_bernoulli_logits,
        data=(jnp.asarray(rows), jnp.asarray(np.where(labels, 1.0, -1.0))),
        like=jnp.zeros(rows.shape[1]),
    )


def ionosphere() -> Target:
    rows = _csv("targets/ionosphere.data")
    return logistic(np.array([row[:-1] for row in rows], float), _column(rows, -1) == "g", 1.0)


def german_credit() -> Target:
    table = np.loadtxt(io.BytesIO(read("targets/german.data-numeric")))
    return logistic(table[:, :-1], table[:, -1] == 1, 10.0)


def breast_cancer() -> Target:
    rows = _csv("targets/wdbc.data")
    return logistic(np.array([row[2:] for row in rows], float), _column(rows, 1) == "M", 1.0)


def cox_process(cells: int = 40) -> Target:
    """The log-Gaussian Cox process of the Finnish pines, in its own coordinates."""
    table = np.array([row[1:] for row in _csv("targets/pines.csv")[1:]], float)
    counts, _, _ = np.histogram2d(table[:, 0], table[:, 1], cells, [[0, 1], [0, 1]])
    place = np.stack(np.meshgrid(np.arange(cells), np.arange(cells), indexing="ij"), -1)
    place = place.reshape(-1, 2)
    distance = np.linalg.norm(place[:, None] - place[None], axis=-1)
    variance, area = 1.91, 1.0 / cells**2
    factor = np.linalg.cholesky(variance * np.exp(-distance * 33.0 / cells))
    whiten = jnp.asarray(np.linalg.inv(factor))
    constant = -np.sum(np.log(np.diag(factor))) - 0.5 * cells**2 * np.log(2 * np.pi)
    mean, counts = np.log(126.0) - 0.5 * variance, jnp.asarray(counts.ravel())

    def log_density(x: Float[Array, " cells"]) -> Float[Array, ""]:
        log_prior = constant - 0.5 * jnp.sum((whiten @ (x - mean)) ** 2)
        return log_prior + jnp.sum(x * counts - area * jnp.exp(x))

    return Target(log_density, like=jnp.zeros(cells**2))


def _fresh_steps() -> tuple[np.ndarray, np.ndarray]:
    """Noisy data inside the range of the training data."""
    step = step_function.data(0)
    return step.x_fresh[:, None], step.y_fresh


def _bernoulli_logits(w: Array, batch: PyTree) -> Float[Array, " batch"]:
    rows, signs = batch
    return jax.nn.log_sigmoid(signs * (rows @ w))


def _csv(name: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(read(name).decode(), newline="")) if row]


def _column(rows: list[list[str]], index: int) -> np.ndarray:
    return np.array([row[index] for row in rows])


def _grid(*axes: Any) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)).astype(float)


_GRID25 = _grid(*[5.0 * np.arange(-2, 3)] * 2)

CASES: dict[str, Case] = {
    **{
        f"gaussian_r{ratio}": Case(functools.partial(single_gaussian, float(ratio)), 0.0)
        for ratio in ("1e-4", "0.01", "1", "25", "400")
    },
    "mixed_scales": Case(mixed_scales, 0.0),
    "ill_conditioned": Case(ill_conditioned, 0.0),
    **{
        f"linear_regression_d{size}": Case(
            functools.partial(_linear_regression, size),
            regression=functools.partial(regression, size, 0),
        )
        for size in DIMS
    },
    "double_well": Case(
        double_well, 0.2930, modes=lambda: 1.5 + np.sqrt(2.0) * np.array([[-1.0], [1.0]])
    ),
    "many_well": Case(many_well, -0.5411, modes=lambda: _grid(*[[-2.0, 2.0]] * 5)),
    "mixture2": Case(lambda: mixture(TWO_MODES), 0.0, modes=lambda: TWO_MODES),
    "mixture4": Case(lambda: mixture(FOUR_MODES), 0.0, modes=lambda: FOUR_MODES),
    "gmm25": Case(lambda: mixture(_GRID25, 0.3), 0.0, modes=lambda: _GRID25),
    "funnel": Case(funnel, 0.0),
    "ionosphere": Case(ionosphere, -111.615, approximate=True),
    "german_credit": Case(german_credit, -585.040, approximate=True),
    "breast_cancer": Case(breast_cancer, -55.224, approximate=True),
    "cox_process": Case(cox_process, 501.775, approximate=True),
    "lotka_volterra": Case(lotka_volterra),
    "hidden_chain": Case(hidden_chain),
    "a9a": Case(a9a.target, held_out=a9a.held_out),
    "step_function": Case(lambda: step_function.target(0), held_out=_fresh_steps),
}
