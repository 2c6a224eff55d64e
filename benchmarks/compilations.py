"""Programs that JAX compiles for a fit, and for the next one like it.

    python -m benchmarks.compilations

Each pair of fits has a process of its own, so that the first finds nothing compiled; what the
disk keeps of earlier processes is not looked at.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm, t
from numpyro.distributions import constraints

import follmer

COMPILED = "/jax/core/compile/backend_compile_duration"
NUM_DATA, NUM_FEATURES = 200, 3


class Fitted(NamedTuple):
    """What one fit took."""

    what: str
    programs: int
    seconds: float  # compilation included


def data(seed: int) -> dict[str, jax.Array]:
    """A regression with Student noise."""
    x_key, noise_key = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(x_key, (NUM_DATA, NUM_FEATURES))
    noise = 0.5 * jax.random.t(noise_key, 4.0, (NUM_DATA,))
    return {"x": x, "y": x @ jnp.array([1.0, -0.5, 0.25]) + noise}


def regression() -> follmer.Target:
    """Slopes and a positive scale, by prior and likelihood."""
    return follmer.Target(
        log_prior=lambda theta: jnp.sum(norm.logpdf(theta["w"])) + norm.logpdf(theta["scale"]),
        log_likelihood=lambda theta, batch: t.logpdf(
            batch["y"], 4.0, batch["x"] @ theta["w"], theta["scale"]
        ),
        data=data(0),
        like={"w": jnp.zeros(NUM_FEATURES), "scale": 1.0},
        constraints={"scale": constraints.positive},
    )


def bare() -> follmer.Target:
    """A bare log density of two dimensions: the README's banana."""
    return follmer.Target(
        lambda x: -0.5 * x[0] ** 2 - 2 * (x[1] - x[0] ** 2) ** 2, like=jnp.zeros(2)
    )


def regressions() -> Iterator[tuple[str, follmer.Target, int]]:
    """The same model with two data sets of one shape."""
    target = regression()
    yield "regression, first fit", target, 0
    yield "regression, with_data of the same shape", target.with_data(data(1)), 0


def keys() -> Iterator[tuple[str, follmer.Target, int]]:
    """The same target with two keys."""
    target = bare()
    yield "bare density, first key", target, 0
    yield "bare density, second key", target, 1


PAIRS: dict[str, Callable[[], Iterator[tuple[str, follmer.Target, int]]]] = {
    "regressions": regressions,
    "keys": keys,
}


def measured(pair: str) -> list[Fitted]:
    """Both fits of a pair, in this process; building the target is not counted."""
    compiled = list[float]()

    def note(event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILED:
            compiled.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(note)
    found = []
    for what, target, seed in PAIRS[pair]():
        key = jax.random.key(seed)
        compiled.clear()
        began = time.perf_counter()
        follmer.fit(target, key=key, progress=False)
        found.append(Fitted(what, len(compiled), time.perf_counter() - began))
    return found


def in_a_fresh_process(pair: str) -> list[Fitted]:
    command = [sys.executable, "-m", "benchmarks.compilations", "--pair", pair]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [Fitted(*fields) for fields in json.loads(told.stdout)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pair", choices=PAIRS, help="one pair, in this process, as JSON")
    options = parser.parse_args()
    if options.pair is not None:
        print(json.dumps(measured(options.pair)))
        return
    print(f"{'fit':<40} {'programs':>8} {'seconds':>8}")
    for pair in PAIRS:
        for one in in_a_fresh_process(pair):
            print(f"{one.what:<40} {one.programs:>8} {one.seconds:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
