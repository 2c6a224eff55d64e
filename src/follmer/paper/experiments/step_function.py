"""A network on a noisy step: how sure are predictions inside and outside the data's range?"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from follmer import metrics, plots
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
from follmer.paper.experiments.networks import layers, relu_network
from follmer.targets import Target, from_network, likelihoods, priors

NOISE_SD = 0.1
_RANGE, _WIDE = 3.5, 10.0


class Step(NamedTuple):
    """Noisy data inside the range, noiseless and wider test data, fresh noisy data inside."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_fresh: np.ndarray
    y_fresh: np.ndarray


def data(seed: int, num_points: int = 100) -> Step:
    """Evenly spaced, but for the fresh points: where chance puts x near the step, errors follow it.

    The paper gives intervals alone, and errors that hardly vary between its runs.
    """
    rng = np.random.default_rng(seed)
    x = np.linspace(-_RANGE, _RANGE, num_points)
    x_test = np.linspace(-_WIDE, _WIDE, num_points)
    x_fresh = rng.uniform(-_RANGE, _RANGE, num_points)

    def noisy(x: np.ndarray) -> np.ndarray:
        return (x >= 0) + NOISE_SD * rng.normal(size=len(x))

    return Step(x, noisy(x), x_test, (x_test >= 0).astype(float), x_fresh, noisy(x_fresh))


def target(seed: int, width: int = 100) -> Target:
    """The paper's 1-100-100-1 network with prior variance .1."""
    step = data(seed)
    return from_network(
        relu_network,
        params=layers([1, width, width, 1], jax.random.key(seed)),
        data=(step.x[:, None], step.y),
        likelihood=likelihoods.Normal(NOISE_SD),
        prior=priors.Normal(0.1**0.5),
    )


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    step = data(seed)
    judge = functools.partial(judged, step=step)
    yield Case("", target(seed, 8 if tiny else 100), judge, step)


def judged(draws: Draws, step: Step) -> dict[str, float]:
    """Errors on the wide noiseless test set; coverage of fresh noisy data inside the range.

    `gibbs_log_likelihood` is the authors' number: a sum over test points without constants.
    """
    test = draws.predict(step.x_test[:, None], step.y_test)
    fresh = draws.predict(step.x_fresh[:, None], step.y_fresh, quantiles=(0.05, 0.95))
    lower, upper = np.asarray(fresh.quantiles, float)
    constant = -np.log(NOISE_SD) - 0.5 * np.log(2 * np.pi)
    gibbs = np.asarray(test.gibbs_log_likelihood, float) - constant
    inside = np.abs(step.x_test) <= _RANGE
    return {
        "mse": metrics.mean_squared_error(np.asarray(test.mean, float), step.y_test),
        "gibbs_log_likelihood": float(np.sum(gibbs)),
        "gibbs_log_likelihood_inside": float(np.sum(gibbs[inside])),
        "gibbs_log_likelihood_outside": float(np.sum(gibbs[~inside])),
        "log_predictive_density": float(np.mean(test.log_predictive_density)),
        "log_predictive_density_inside": float(np.mean(test.log_predictive_density[inside])),
        "log_predictive_density_outside": float(np.mean(test.log_predictive_density[~inside])),
        "coverage_90": metrics.interval_coverage(lower, upper, step.y_fresh),
    }


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    sgld = authors_sgld(tiny, a=1e-3, b=10.0, num_iterations=300, batch_size=32)
    if preset == "auto":
        decay = PolynomialDecay(1e-5, b=10.0)
        sgld = baseline("sgld", tiny, step_size=decay, num_iterations=50_000, batch_size=32)
    return {
        **n_sfs(preset, tiny, num_steps=20, gamma=0.05**2, batch_size=32),
        **sgld,
        **baseline("sgd", tiny, batch_size=32),
    }


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    step = trials[0].case.data
    # An even number of points: none stands on the step itself.
    x = np.linspace(-_WIDE, _WIDE, 200)
    figure, axes = figures.panels(trials)
    for panel, trial in zip(axes, trials, strict=True):
        found = trial.draws.predict(x[:, None], quantiles=(0.05, 0.95))
        lower, upper = np.asarray(found.quantiles, float)
        plots.predictive_band(
            panel,
            x,
            np.asarray(found.mean, float),
            lower,
            upper,
            points=(step.x, step.y),
            truth=(x >= 0).astype(float),
            method=trial.method,
        )
        # One scale for all, so that widths can be compared; wilder bands leave the panel.
        panel.set_ylim(-2.0, 3.0)
    yield Picture(
        "bands",
        "Predictions",
        f"Predictive mean and 90 % interval of each method, over the data and the true step. Data "
        f"end at ±{_RANGE}: beyond, an interval should widen, and one that stays narrow is sure of "
        "what nothing tells it.",
        figure,
    )
    yield from figures.training(preset, trials)
