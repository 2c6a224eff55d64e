"""The targets of `follmer bench`, each with what is known about it."""

import csv
import dataclasses
import functools
import io
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.datasets import load
from follmer.datasets.files import read
from follmer.targets import Target


@dataclasses.dataclass(frozen=True)
class Case:
    """A target and its truths.

    `log_evidence` is exact, or from long SMC runs where `approximate`; `modes` are the points whose
    basins are counted, of equal weight; `regression` is there where the posterior is normal.
    """

    build: Callable[[], Target]
    log_evidence: float | None = None
    approximate: bool = False
    modes: Callable[[], np.ndarray] | None = None
    regression: Callable[[], "Regression"] | None = None

    def true_log_evidence(self) -> float | None:
        return self.log_evidence if self.regression is None else self.regression().log_evidence()


class Regression(NamedTuple):
    """y = rows·θ + noise of known sd, θ ~ N(0, I): everything is known in closed form."""

    rows: np.ndarray
    y: np.ndarray
    test_rows: np.ndarray
    noise_sd: float

    def log_evidence(self) -> float:
        """ln N(y; 0, rows rowsᵀ + noise_sd² I)."""
        covariance = self.rows @ self.rows.T + self.noise_sd**2 * np.eye(len(self.y))
        factor = np.linalg.cholesky(covariance)
        whitened = np.linalg.solve(factor, self.y)
        log_det = 2 * np.sum(np.log(np.diag(factor)))
        return float(-0.5 * (whitened @ whitened + log_det + len(self.y) * np.log(2 * np.pi)))

    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Its mean, and a matrix L with covariance L Lᵀ."""
        precision = np.eye(self.rows.shape[1]) + self.rows.T @ self.rows / self.noise_sd**2
        factor = np.linalg.inv(np.linalg.cholesky(precision)).T
        return factor @ (factor.T @ (self.rows.T @ self.y)) / self.noise_sd**2, factor


def mixture(means: np.ndarray, variance: float) -> Target:
    """Equal normals of one variance, normalised."""
    centres = jnp.asarray(means)

    def log_density(x: Float[Array, " dim"]) -> Float[Array, ""]:
        terms = jnp.sum(stats.norm.logpdf(x, centres, np.sqrt(variance)), axis=1)
        return jax.nn.logsumexp(terms) - np.log(len(means))

    return Target(log_density, like=jnp.zeros(means.shape[1]))


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


@functools.cache
def regression(num_features: int) -> Regression:
    """The paper's: x ~ N(0, I), as many rows as parameters, y = 1ᵀx + 1 + .2 ε, a bias column."""
    rng = np.random.default_rng(num_features)
    size = num_features + 1
    rows, test_rows = (
        np.column_stack([rng.normal(size=(size, num_features)), np.ones(size)]) for _ in range(2)
    )
    noise_sd = 0.2
    y = rows.sum(axis=1) + noise_sd * rng.normal(size=size)
    return Regression(rows, y, test_rows, noise_sd)


def linear_regression(num_features: int) -> Target:
    known = regression(num_features)

    def log_likelihood(w: Float[Array, " dim"], batch: PyTree) -> Float[Array, " batch"]:
        rows, y = batch
        return stats.norm.logpdf(y, rows @ w, known.noise_sd)

    return Target(
        log_prior=lambda w: jnp.sum(stats.norm.logpdf(w)),
        log_likelihood=log_likelihood,
        data=(jnp.asarray(known.rows), jnp.asarray(known.y)),
        like=jnp.zeros(known.rows.shape[1]),
    )


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


def a9a() -> Target:
    """Logistic regression with a Laplace(0, 1) prior on 123 binary features and a bias."""
    x, y, *_ = load("a9a")
    rows, signs = np.column_stack([x, np.ones(len(x))]), np.where(np.asarray(y), 1.0, -1.0)
    return Target(
        log_prior=lambda w: jnp.sum(stats.laplace.logpdf(w)),
        log_likelihood=_bernoulli_logits,
        data=(jnp.asarray(rows), jnp.asarray(signs)),
        like=jnp.zeros(rows.shape[1]),
    )


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


def step_function(num_points: int = 100, width: int = 100) -> Target:
    """The paper's 1-100-100-1 network on a noisy step, prior variance .1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.5, 3.5, num_points)
    y = (x >= 0) + 0.1 * rng.normal(size=num_points)
    sizes = [1, width, width, 1]
    like = [(jnp.zeros((sizes[i], sizes[i + 1])), jnp.zeros(sizes[i + 1])) for i in range(3)]

    def log_likelihood(layers: PyTree, batch: PyTree) -> Float[Array, " batch"]:
        h, y = batch[0][:, None], batch[1]
        for weight, bias in layers[:-1]:
            h = jax.nn.relu(h @ weight + bias)
        weight, bias = layers[-1]
        return stats.norm.logpdf(y, (h @ weight + bias)[:, 0], 0.1)

    def log_prior(layers: PyTree) -> Float[Array, ""]:
        terms = [jnp.sum(stats.norm.logpdf(w, 0.0, 0.1**0.5)) for w in jax.tree.leaves(layers)]
        return jnp.sum(jnp.stack(terms))

    return Target(
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        data=(jnp.asarray(x), jnp.asarray(y)),
        like=like,
    )


def _bernoulli_logits(w: Array, batch: PyTree) -> Float[Array, " batch"]:
    rows, signs = batch
    return jax.nn.log_sigmoid(signs * (rows @ w))


def _csv(name: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(read(name).decode(), newline="")) if row]


def _column(rows: list[list[str]], index: int) -> np.ndarray:
    return np.array([row[index] for row in rows])


def _grid(*axes: Any) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)).astype(float)


_TWO = np.array([[-4.0, 0.0], [4.0, 0.0]])
_FOUR = np.array([[-4.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [4.0, 0.0]])
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
            functools.partial(linear_regression, size),
            regression=functools.partial(regression, size),
        )
        for size in (32, 64, 128, 256, 512, 1024, 2048)
    },
    "double_well": Case(
        double_well, 0.2930, modes=lambda: 1.5 + np.sqrt(2.0) * np.array([[-1.0], [1.0]])
    ),
    "many_well": Case(many_well, -0.5411, modes=lambda: _grid(*[[-2.0, 2.0]] * 5)),
    "mixture2": Case(lambda: mixture(_TWO, 0.05), 0.0, modes=lambda: _TWO),
    "mixture4": Case(lambda: mixture(_FOUR, 0.05), 0.0, modes=lambda: _FOUR),
    "gmm25": Case(lambda: mixture(_GRID25, 0.3), 0.0, modes=lambda: _GRID25),
    "funnel": Case(funnel, 0.0),
    "ionosphere": Case(ionosphere, -111.61, approximate=True),
    "german_credit": Case(german_credit, -585.040, approximate=True),
    "breast_cancer": Case(breast_cancer, -55.22, approximate=True),
    "cox_process": Case(cox_process, 501.65, approximate=True),
    "a9a": Case(a9a),
    "step_function": Case(step_function),
}
