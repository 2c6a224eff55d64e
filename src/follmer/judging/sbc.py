"""Simulation-based calibration: are posterior draws right on average over the prior?

Talts et al. 2018 (arXiv:1804.06788): where (θ, data) come from the joint distribution and the draws
from the posterior given the data, the rank of θ among the draws is uniform. simuk runs this for
PyMC, Bambi and NumPyro's own kernels only.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.scipy.stats import chi2
from jaxtyping import Int, PRNGKeyArray, PyTree

from follmer.errors import InputError, NonFiniteError
from follmer.targets.space import named_leaves
from follmer.tools.checks import as_key, options_checked, positive_int

# A chi-square test needs this many expected in each bin; more bins than these only lose power.
_MIN_EXPECTED = 5
_MAX_BINS = 10

Simulate = Callable[[PRNGKeyArray], tuple[PyTree, PyTree]]
Fit = Callable[[PyTree, PRNGKeyArray], PyTree]


class Calibration(NamedTuple):
    """Ranks of the true parameters among their draws, and whether they look uniform.

    `ranks` holds one value from 0 to `num_draws` per simulation, for every scalar parameter;
    `p_values` those of a chi-square test of each parameter's ranks.
    """

    ranks: dict[str, Int[np.ndarray, " simulations"]]
    p_values: dict[str, float]
    num_draws: int

    @property
    def p_value(self) -> float:
        """All parameters together, by Bonferroni's rule: they need not be independent."""
        return min(1.0, len(self.p_values) * min(self.p_values.values()))

    def passed(self, level: float = 0.01) -> bool:
        """Whether a correct sampler would give such ranks; it fails with probability `level`."""
        return self.p_value >= level

    def summary(self) -> str:
        """The p-values, the least first, and what is wrong with the draws where something is."""
        width = max(map(len, self.ranks)) + 2
        lines = [f"{'':<{width}}{'p-value':>10}{'mean rank':>12}{'spread':>10}"]
        for name in sorted(self.p_values, key=lambda name: self.p_values[name]):
            mean, spread = self._moments(name)
            lines.append(f"{name:<{width}}{self.p_values[name]:>10.3g}{mean:>12.3f}{spread:>10.3f}")
        count = len(next(iter(self.ranks.values())))
        lines += ["", f"Verdict over {count} simulations: {self._verdict()}."]
        return "\n".join(lines)

    def _moments(self, name: str) -> tuple[float, float]:
        """Mean of the ranks on [0, 1], and their standard deviation over a uniform's."""
        scaled = (self.ranks[name] + 0.5) / (self.num_draws + 1)
        return float(np.mean(scaled)), float(np.std(scaled) * np.sqrt(12))

    def _verdict(self) -> str:
        if self.passed():
            return f"calibrated as far as can be seen (p = {self.p_value:.2g})"
        worst = min(self.p_values, key=lambda name: self.p_values[name])
        mean, spread = self._moments(worst)
        error = np.sqrt(1 / (12 * len(self.ranks[worst])))
        if abs(mean - 0.5) > 3 * error:
            how = "too low" if mean > 0.5 else "too high"
        elif abs(spread - 1) > 0.05:
            how = "too narrow" if spread > 1 else "too wide"
        else:
            how = "of the wrong shape"
        return f"not calibrated (p = {self.p_value:.2g}): the draws of {worst} are {how}"


@options_checked
def sbc(
    simulate: Simulate,
    fit: Fit,
    *,
    key: PRNGKeyArray,
    num_simulations: int = 200,
    num_draws: int = 99,
) -> Calibration:
    """Rank parameters drawn from the prior among posterior draws given data drawn with them.

    **Arguments:**

    - `simulate`: `simulate(key) -> (theta, data)`, parameters from the prior and data given them.
    - `fit`: `fit(data, key) -> draws`, a tree like `theta` with a leading axis of at least
      `num_draws`, for example `lambda data, key: posterior.resample(99, key=key)` after a fit.
    - `num_draws`: draws ranked among, evenly spaced in those that `fit` returns; they should be
      nearly independent, and `num_draws + 1` is best a multiple of 10.
    """
    num_simulations = positive_int("num_simulations", num_simulations)
    num_draws = positive_int("num_draws", num_draws)
    if num_simulations < 2 * _MIN_EXPECTED:
        raise InputError(
            f"num_simulations is {num_simulations}: ranks so few cannot be tested.",
            hint="num_simulations=200",
        )
    if num_draws < _MAX_BINS - 1:
        raise InputError(f"num_draws is {num_draws}: ranks so coarse tell little.", hint="99")
    rows = []
    for simulation_key in jax.random.split(as_key(key), num_simulations):
        data_key, fit_key, tie_key = jax.random.split(simulation_key, 3)
        theta, data = simulate(data_key)
        draws = fit(data, fit_key)
        seed = np.asarray(jax.random.key_data(tie_key))
        rows.append(_ranks(theta, draws, num_draws, np.random.default_rng(seed)))
    ranks = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    p_values = {name: uniformity(values, num_draws) for name, values in ranks.items()}
    return Calibration(ranks, p_values, num_draws)


def uniformity(ranks: Int[np.ndarray, " simulations"], num_draws: int) -> float:
    """The p-value of a chi-square test that ranks are uniform on 0, …, num_draws."""
    num_bins = int(np.clip(len(ranks) // _MIN_EXPECTED, 2, min(_MAX_BINS, num_draws + 1)))
    # Bins of whole ranks need not be equal; what is expected of each follows its size.
    bin_of = np.arange(num_draws + 1) * num_bins // (num_draws + 1)
    expected = len(ranks) * np.bincount(bin_of) / (num_draws + 1)
    observed = np.bincount(bin_of[ranks], minlength=num_bins)
    return float(chi2.sf(np.sum((observed - expected) ** 2 / expected), num_bins - 1))


def _ranks(
    theta: PyTree, draws: PyTree, num_draws: int, rng: np.random.Generator
) -> dict[str, int]:
    truths, returned = named_leaves(theta), named_leaves(draws)
    if [name for name, _ in truths] != [name for name, _ in returned]:
        raise InputError(
            f"fit returned draws of {[name for name, _ in returned]}; "
            f"theta has {[name for name, _ in truths]}.",
            hint="return draws under the names that simulate uses for theta",
        )
    ranks = {}
    for (name, truth), (_, values) in zip(truths, returned, strict=True):
        truth = np.asarray(truth, float)
        values = _thinned(name, truth, np.asarray(values, float), num_draws)
        for place in np.ndindex(truth.shape):
            own, true = values[:, *place], truth[place]
            # Ties, as with rounded or discrete values, are broken at random.
            rank = np.sum(own < true) + rng.integers(np.sum(own == true) + 1)
            index = ",".join(map(str, place))
            ranks[f"{name}[{index}]" if place else name] = int(rank)
    return ranks


def _thinned(name: str, truth: np.ndarray, values: np.ndarray, num_draws: int) -> np.ndarray:
    if values.ndim == 0 or values.shape[1:] != truth.shape:
        raise InputError(
            f"fit returned shape {values.shape} for {name}, which has shape {truth.shape}.",
            hint=f"draws along a leading axis: {('draws', *truth.shape)}",
        )
    if len(values) < num_draws:
        raise InputError(
            f"fit returned {len(values)} draws of {name}, fewer than num_draws={num_draws}.",
            hint=f"return at least {num_draws}, or num_draws={len(values)}",
        )
    chosen = values[np.linspace(0, len(values) - 1, num_draws).round().astype(int)]
    if not (np.isfinite(chosen).all() and np.isfinite(truth).all()):
        raise NonFiniteError(
            f"{name} has draws or a true value that are not finite.",
            cause="the fit failed on one of the simulated data sets",
        )
    return chosen
