"""Milliseconds per training iteration of a structured target, whatever the number of data points.

    python -m benchmarks.structured [--sizes 1000 10000 100000 1000000] [--repeats 15]

One local variable per data point, a fixed batch. Sizes take turns, so that all share the machine's
noise; medians of the turns, as they are and relative to the first size's turn just before.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from numpyro.distributions import constraints

import follmer
from follmer.plans import Survey
from follmer.plans.structured import structured
from follmer.targets import random_batch

BATCH, ITERATIONS = 128, 20


def hierarchy(num_data: int) -> follmer.StructuredTarget:
    """x_i ~ N(θ_i, 1) twice, θ_i ~ N(mean, spread)."""
    rng = np.random.default_rng(0)
    data = 1.0 + 0.5 * rng.normal(size=(num_data, 1)) + rng.normal(size=(num_data, 2))
    return follmer.StructuredTarget(
        log_prior_global=lambda phi: norm.logpdf(phi["mean"]) + norm.logpdf(phi["spread"]),
        log_prior_local=lambda theta, phi: norm.logpdf(theta, phi["mean"], phi["spread"]),
        log_likelihood=lambda theta, phi, x: jnp.sum(norm.logpdf(x, theta, 1.0)),
        data=data.astype(np.float32),
        like_global={"mean": jnp.zeros(()), "spread": jnp.zeros(())},
        like_local=jnp.zeros(()),
        constraints={"global": {"spread": constraints.positive}},
    )


class Prepared(NamedTuple):
    """Some compiled iterations of one size, and the seconds before the first."""

    train: Any
    state: Any
    data: Any
    warm_up: float
    compiling: float

    def milliseconds(self) -> float:
        """Of one iteration."""
        began = time.perf_counter()
        jax.block_until_ready(self.train(self.state, self.data))
        return 1e3 * (time.perf_counter() - began) / ITERATIONS


def prepared(num_data: int) -> Prepared:
    key = jax.random.key(0)
    target = hierarchy(num_data)
    began = time.perf_counter()
    plan = structured(Survey(target, key), key)
    algorithm = plan.algorithm({"batch_size": BATCH})
    warm_up = time.perf_counter() - began

    def train(state: follmer.State, data: Any) -> follmer.State:
        def body(i: jax.Array, state: follmer.State) -> follmer.State:
            batch_key, step_key = jax.random.split(jax.random.fold_in(key, i))
            return algorithm.step(state, step_key, random_batch(batch_key, data, num_data, BATCH))[
                0
            ]

        return jax.lax.fori_loop(0, ITERATIONS, body, state)

    state, data = algorithm.init(key), algorithm.target.data
    began = time.perf_counter()
    compiled = jax.jit(train).lower(state, data).compile()
    return Prepared(compiled, state, data, warm_up, time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    print(f"batches of {BATCH} data points, medians of {options.repeats} turns")
    runs = [prepared(size) for size in options.sizes]
    for run in runs:
        run.milliseconds()  # the first call loads what was compiled
    turns = np.array([[run.milliseconds() for run in runs] for _ in range(options.repeats)])
    medians, ratios = np.median(turns, axis=0), np.median(turns / turns[:, :1], axis=0)
    print(f"{'data points':>12} {'ms/iter':>8} {'ratio':>6} {'warm-up s':>10} {'compile s':>10}")
    for size, run, median, ratio in zip(options.sizes, runs, medians, ratios, strict=True):
        print(
            f"{size:>12} {median:>8.2f} {ratio:>6.2f} {run.warm_up:>10.1f} {run.compiling:>10.1f}"
        )


if __name__ == "__main__":
    main()
