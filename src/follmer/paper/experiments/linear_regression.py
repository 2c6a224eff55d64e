"""Bayesian linear regression from 32 to 2048 dimensions, against the exact posterior."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree

from follmer import plots
from follmer.baselines import PolynomialDecay
from follmer.paper.experiments import figures
from follmer.paper.experiments.experiment import (
    METHODS,
    Case,
    Draws,
    Method,
    Picture,
    Record,
    Trial,
    baseline,
    n_sfs,
)
from follmer.paper.report.published import published
from follmer.targets import Target

DIMS = tuple(2**power for power in range(5, 12))
NUM_DRAWS = 100
_LABEL = "d = {}"
_SGLD_SHARE, _SGLD_B = 0.3, 1000.0
# MC-SFS evaluates a thousand densities per step and draw, each at a cost of d²: the largest d of
# the first seed and of the others.
_LARGEST_MC_SFS = (512, 256)


class Errors(NamedTuple):
    """Mean absolute errors of the predictive mean and standard deviation over test rows."""

    mean: float
    std: float


@dataclasses.dataclass(frozen=True)
class Regression:
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

    @functools.cached_property
    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Its mean, and a matrix L with covariance L Lᵀ."""
        precision = np.eye(self.rows.shape[1]) + self.rows.T @ self.rows / self.noise_sd**2
        factor = np.linalg.inv(np.linalg.cholesky(precision)).T
        return factor @ (factor.T @ (self.rows.T @ self.y)) / self.noise_sd**2, factor

    def schedule(self) -> PolynomialDecay:
        """SGLD's steps, which begin at a share of the longest that is stable."""
        # A square matrix of normals has singular values up to 2 √rows.
        curvature = 1.0 + 4.0 * len(self.rows) / self.noise_sd**2
        return PolynomialDecay(_SGLD_SHARE / curvature * _SGLD_B**PolynomialDecay.c, b=_SGLD_B)

    def errors(self, draws: np.ndarray) -> Errors:
        """Of predictions by these draws of θ."""
        mean, sd = self._predictive
        values = draws @ self.test_rows.T
        return Errors(
            float(np.mean(np.abs(values.mean(axis=0) - mean))),
            float(np.mean(np.abs(values.std(axis=0, ddof=1) - sd))),
        )

    def expected_errors(self) -> Errors:
        """Of predictions by 100 exact draws, in expectation."""
        from scipy.stats import chi

        freedom = NUM_DRAWS - 1
        # The standard deviation of draws is χ/√(n−1) times the true one.
        off = chi(freedom).expect(lambda value: np.abs(value / np.sqrt(freedom) - 1.0))
        sd = np.mean(self._predictive[1])
        return Errors(float(sd * np.sqrt(2.0 / (np.pi * NUM_DRAWS))), float(sd * off))

    @functools.cached_property
    def _predictive(self) -> tuple[np.ndarray, np.ndarray]:
        """The exact mean and standard deviation of every test row's rows·θ."""
        mean, factor = self.posterior
        return self.test_rows @ mean, np.linalg.norm(self.test_rows @ factor, axis=1)


@functools.cache
def regression(num_features: int, seed: int) -> Regression:
    """The paper's: x ~ N(0, I), as many rows as parameters, y = 1ᵀx + 1 + .2 ε, a bias column."""
    rng = np.random.default_rng([seed, num_features])
    size = num_features + 1
    rows, test_rows = (
        np.column_stack([rng.normal(size=(size, num_features)), np.ones(size)]) for _ in range(2)
    )
    noise_sd = 0.2
    y = rows.sum(axis=1) + noise_sd * rng.normal(size=size)
    return Regression(rows, y, test_rows, noise_sd)


def linear_regression(known: Regression) -> Target:
    def log_likelihood(w: Float[Array, " dim"], batch: PyTree) -> Float[Array, " batch"]:
        rows, y = batch
        return norm.logpdf(y, rows @ w, known.noise_sd)

    return Target(
        log_prior=lambda w: jnp.sum(norm.logpdf(w)),
        log_likelihood=log_likelihood,
        data=(jnp.asarray(known.rows), jnp.asarray(known.y)),
        like=jnp.zeros(known.rows.shape[1]),
    )


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    for dim in (4,) if tiny else DIMS:
        known = regression(dim, seed)
        largest = _LARGEST_MC_SFS[min(seed, 1)]
        leave_out = frozenset({"mc_sfs"}) if dim > largest else frozenset()
        judge = functools.partial(judged, known=known)
        options = {"sgld": {"step_size": known.schedule()}}
        yield Case(_LABEL.format(dim), linear_regression(known), judge, dim, leave_out, options)


def judged(draws: Draws, known: Regression) -> dict[str, float]:
    """Errors of predictions by 100 draws, and their ratios to those of 100 exact draws.

    One set of 100 draws says little: where the method affords more, errors are averaged over sets.
    """
    num_sets = max(draws.method.num_samples // NUM_DRAWS, 1)
    thetas = np.asarray(draws.sample(num_sets * NUM_DRAWS), float)
    own = Errors(*np.mean([known.errors(part) for part in np.split(thetas, num_sets)], axis=0))
    exact = known.expected_errors()
    return {
        "predictive_mean_mae": float(own.mean),
        "predictive_std_mae": float(own.std),
        "predictive_mean_ratio": float(own.mean / exact.mean),
        "predictive_std_ratio": float(own.std / exact.std),
    }


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    authors: dict[str, Any] = {
        "gamma": 1e-4,
        "num_iterations": 1000,
        "batch_size": 100,
        "drift_options": {"width": 400},
    }
    return {
        # The authors' 143 steps are not for running statistics: the draws would run away.
        **n_sfs(preset, tiny, num_steps=20, **authors),
        **baseline("mc_sfs", tiny, num_samples=1000, num_steps=143, gamma=1.0),
        **baseline("sgld", tiny, num_iterations=30_000, batch_size=100),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    yield errors_picture(records)
    dims = sorted({trial.case.data for trial in trials})
    ends = {_LABEL.format(dim) for dim in (dims[0], dims[-1])}
    yield from figures.training(preset, [trial for trial in trials if trial.case.label in ends])


def errors_picture(records: Sequence[Record]) -> Picture:
    """Errors by dimension; the records are enough to draw it."""
    dims = [dim for dim in (4, *DIMS) if _LABEL.format(dim) in map(_case_of, records)]
    figure, axes = plots.figure(1, 2)
    for panel, what in zip(axes[0], ("mean", "std"), strict=True):
        found = {method: _by_dimension(records, method, dims, what) for method in METHODS}
        found = {method: pair for method, pair in found.items() if np.isfinite(pair[0]).any()}
        exact = [getattr(regression(dim, 0).expected_errors(), what) for dim in dims]
        printed = {method: _published(method, dims, what) for method in found}
        found["exact"] = np.array(exact), np.zeros(len(dims))
        named = {"mean": "mean", "std": "sd"}[what]
        plots.error_by_dimension(
            panel,
            dims,
            found,
            error=f"mean absolute error of the predictive {named}",
            published={name: one for name, one in printed.items() if np.isfinite(one).any()},
        )
    return Picture(
        "errors",
        "Errors by dimension",
        "Mean absolute errors of predictions by 100 draws; means and standard deviations over "
        "seeds. A perfect sampler lies on the grey line, the errors of 100 exact posterior draws. "
        "Dashed: the paper's own errors, where it gives any.",
        figure,
    )


def _by_dimension(
    records: Sequence[Record], method: str, dims: Sequence[int], what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd over seeds of a method's errors; nan where there are none."""
    pairs = []
    for dim in dims:
        values = [
            record.metrics.get(f"predictive_{what}_mae")
            for record in records
            if (record.method, _case_of(record)) == (method, _LABEL.format(dim))
        ]
        own = np.array([value for value in values if value is not None], float)
        sd = own.std(ddof=1) if own.size > 1 else 0.0
        pairs.append((own.mean() if own.size else np.nan, sd))
    means, sds = np.array(pairs).T
    return means, sds


def _published(method: str, dims: Sequence[int], what: str) -> np.ndarray:
    """The paper's errors of a method; nan where it has none."""
    name = f"predictive_{what}_mae"
    printed = [published("linear_regression", _LABEL.format(dim)).get(method, {}) for dim in dims]
    return np.array([one[name].mean if name in one else np.nan for one in printed])


def _case_of(record: Record) -> str:
    return record.settings["case"]
