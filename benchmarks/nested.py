"""ln Z by nautilus and pocoMC, in an environment of its own, beside `follmer bench`.

    python -m venv .venv-nested && .venv-nested/bin/pip install . nautilus-sampler
    .venv-nested/bin/pip install torch==2.13.0 && .venv-nested/bin/pip install pocomc
    .venv-nested/bin/python -m benchmarks.nested

Both climb from a prior to a likelihood. A flat density has neither, so the prior is N(0, 10²) for
every coordinate and the likelihood the density over it: one setting for every target. Each has its
own defaults, nautilus a limit of four minutes. Written to docs/results/bench/nested.json.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from scipy.stats import norm

from follmer.bench.running import Record
from follmer.bench.table import as_json
from follmer.bench.targets import CASES
from follmer.errors import in_a_line
from follmer.paper.experiments.gaussian_mixture import FOUND, mode_masses
from follmer.targets import Target
from follmer.tools.tables import machine

RECORD = Path(__file__).parent.parent / "docs" / "results" / "bench" / "nested.json"
# Of the prior: as wide as anything that the targets hold, in most of them much wider.
PRIOR_SD = 10.0
# nautilus goes on until 10⁴ effective draws; seconds after which it stops.
_TIME_LIMIT = 240.0

LogLikelihood = Callable[[np.ndarray], np.ndarray]


class Found(NamedTuple):
    """Weighted draws, and ln Z with its error where the method tells one."""

    draws: np.ndarray
    weights: np.ndarray
    log_evidence: float
    log_evidence_se: float | None
    evaluations: int


def log_likelihood(target: Target) -> LogLikelihood:
    """The density over the prior at rows of points, compiled for numbers of rows that double."""

    def one(x: jax.Array) -> jax.Array:
        return target.log_density(x) - jnp.sum(stats.norm.logpdf(x, 0.0, PRIOR_SD))

    several = jax.jit(jax.vmap(one))

    def called(x: np.ndarray) -> np.ndarray:
        rows = np.atleast_2d(x)
        filled = np.pad(
            rows, ((0, (1 << (len(rows) - 1).bit_length()) - len(rows)), (0, 0)), "edge"
        )
        values = several(jnp.asarray(filled, target.dtype))
        return np.asarray(values, float)[: len(rows)]

    return called


def nautilus(likelihood: LogLikelihood, dim: int) -> Found:
    """Importance nested sampling with neural networks for its bounds (Lange 2023)."""
    from nautilus import Sampler

    def prior(unit_cube: np.ndarray) -> np.ndarray:
        return PRIOR_SD * norm.ppf(unit_cube)

    sampler: Any = Sampler(prior, likelihood, n_dim=dim, vectorized=True, pass_dict=False, seed=0)
    is_done = sampler.run(timeout=_TIME_LIMIT)
    draws, log_weights, _ = sampler.posterior()
    se = float(1.0 / np.sqrt(sampler.n_eff)) if is_done else None
    return Found(draws, np.exp(log_weights), float(sampler.log_z), se, int(sampler.n_like))


def pocomc(likelihood: LogLikelihood, dim: int) -> Found:
    """Sequential Monte Carlo in the coordinates of a flow (Karamanis et al. 2022)."""
    from pocomc import Prior, Sampler

    prior = Prior(dim * [norm(0.0, PRIOR_SD)])
    sampler: Any = Sampler(prior=prior, likelihood=likelihood, vectorize=True, random_state=0)
    sampler.run(progress=False)
    draws, weights, _, _ = sampler.posterior()
    log_evidence, se = sampler.evidence()
    return Found(draws, weights, float(log_evidence), float(se), int(sampler.calls))


METHODS = {"nautilus": nautilus, "pocomc": pocomc}


def measured(name: str, method: str) -> Record:
    """One target by one method; what fails says so."""
    case = CASES[name]
    target = case.build()
    record = Record(name, method, target.dim, truth=case.true_log_evidence())
    record = record._replace(truth_is_approximate=case.approximate)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = METHODS[method](log_likelihood(target), target.dim)
    except Exception as error:
        return record._replace(note=f"failed: {in_a_line(error)}")
    seconds = time.perf_counter() - began
    if case.modes is not None:
        modes = case.modes()
        weights = found.weights / found.weights.sum()
        masses = mode_masses(found.draws, modes, weights)
        record = record._replace(
            modes_found=f"{np.sum(masses >= FOUND / len(modes))} of {len(modes)}",
            mode_weight_error=float(np.max(np.abs(masses - 1 / len(modes)))),
        )
    return record._replace(
        log_evidence=found.log_evidence,
        log_evidence_se=found.log_evidence_se,
        seconds=seconds,
        note=f"{found.evaluations:,} evaluations of the density",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["gmm25", "funnel"])
    names = parser.parse_args().names
    measured_on = machine(" ".join(["python -m benchmarks.nested", *names]))
    records = []
    for name in names:
        for method in METHODS:
            records.append(measured(name, method))
            print(records[-1], flush=True)
    RECORD.write_text(as_json(measured_on, records) + "\n")


if __name__ == "__main__":
    main()
