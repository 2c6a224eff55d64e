"""One core, two cores by XLA's own threads, and two devices of one core each; then a model of more.

    python -m benchmarks.devices [--seconds 1]

The programs are the library's own. Every ratio compares two things measured in the same run. The
table of hosts is computed, not measured: from the seconds of a path and of a byte that is summed,
the bytes that a training step sends and the network's figures below.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# Ways to use the machine: cores and devices.
WAYS = {"one core": (1, 1), "XLA's threads": (2, 1), "two devices": (2, 2)}

# A network of a good cluster: seconds for a message, bytes a second (100 Gbit/s).
LATENCY, BANDWIDTH = 20e-6, 12.5e9
HOSTS = (1, 2, 4, 8, 16, 64, 256, 1000)
NUM_PATHS, NUM_STEPS, WIDTH = 32, 20, 300
ITERATIONS = 4
# Dimensions of targets that are trained, and rows in a batch; None for all.
TRAINED = {2: None, 124: 512}


def training_arguments(dim: int, batch_size: int | None) -> tuple[Any, ...]:
    """Of the program of some training steps, with the drift of the paper's width."""
    import jax
    import numpy as np

    from benchmarks.step import TARGETS
    from follmer import NSFS
    from follmer.fitting.training import _init

    algorithm = NSFS(
        TARGETS[dim](),
        drift="mlp",
        drift_options={"width": WIDTH},
        num_paths=NUM_PATHS,
        num_steps=NUM_STEPS,
        batch_size=batch_size,
    )
    key = jax.random.key(0)
    return algorithm, _init(algorithm, key), key, np.asarray(ITERATIONS), ITERATIONS


def training(dim: int, batch_size: int | None) -> Callable[[], Any]:
    """Some training steps."""
    from follmer.fitting.training import _advance

    arguments = training_arguments(dim, batch_size)
    return lambda: _advance(*arguments)


def drawing(dim: int, num_draws: int) -> Callable[[], Any]:
    """Draws of an untrained process and their weights: they cost as much as those of a trained."""
    import jax

    from benchmarks.step import TARGETS
    from follmer.posterior.samplers import Flow, draw
    from follmer.process import Process
    from follmer.tools.keys import key_rows

    process = Process(TARGETS[dim]())
    key = jax.random.key(0)
    flow, rows = Flow(process, process.parameters(key)), key_rows(key, num_draws)
    return lambda: draw(flow, rows, None)


def chains() -> Callable[[], Any]:
    """The moves of one call of 64 chains of a survey: a logistic regression of 1000 rows."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import follmer
    from follmer.mcmc.chains import Wide, advance, as_chains

    x = np.random.default_rng(0).normal(size=(1000, 10)).astype("float32")
    target = follmer.Target(
        log_prior=follmer.priors.Normal(),
        log_likelihood=lambda w, batch: jax.nn.log_sigmoid(batch @ w),
        data=x,
        like=jnp.zeros(10),
    )
    start = as_chains(target, np.zeros((64, 10)), np.zeros(64), np.zeros((64, 10)))
    wide = Wide(jnp.zeros(10), jnp.ones(10), jnp.ones(()))
    key, factor = jax.random.key(0), 0.05 * jnp.eye(10)
    return lambda: advance(target, start, wide, factor, key, np.asarray(0))


def ensemble() -> Callable[[], Any]:
    """Steps of 16 members of an ensemble: networks of 50 hidden units, 400 rows."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import follmer
    from follmer.mcmc.microcanonical import Dynamics, advance, as_particles

    key, rng = jax.random.key(0), np.random.default_rng(0)
    x, y = rng.normal(size=(400, 8)), rng.normal(size=400)
    net = eqx.nn.MLP(8, 1, 50, 1, key=key)
    target = follmer.from_network(net, data=(x, y), likelihood="normal")
    places = 0.1 * jax.random.normal(key, (16, target.dim))
    start = as_particles(target, places, key)
    dynamics = Dynamics(jnp.asarray(1.0), jnp.asarray(1.0))
    first = jnp.zeros((), jnp.int32)
    return lambda: advance(target, start, dynamics, key, first, num_kept=5, thinning=10)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "4 training steps, d = 2": lambda: training(2, TRAINED[2]),
    "4 training steps, d = 124, batches of 512": lambda: training(124, TRAINED[124]),
    "1024 draws, d = 2": lambda: drawing(2, 1024),
    "64 chains × 8 moves, d = 10": chains,
    "16 networks × 50 steps": ensemble,
}


def measured(cores: int, devices: int, seconds: float) -> dict[str, Any]:
    """The fastest call of every case, in this process; on a mesh, what a training step sends."""
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:cores])
    import jax

    import follmer

    follmer.use_cores(devices)
    found: dict[str, Any] = {}
    for name, make in CASES.items():
        with follmer.on_mesh("auto" if devices > 1 else None):
            call = make()
            jax.block_until_ready(call())
            times: list[float] = []
            while len(times) < 3 or sum(times) < seconds:
                began = time.perf_counter()
                jax.block_until_ready(call())
                times.append(time.perf_counter() - began)
        found[name] = min(times)
    if devices > 1:
        with follmer.on_mesh("auto"):
            found["sums"] = {dim: sums(dim, batch) for dim, batch in TRAINED.items()}
    return found


def sums(dim: int, batch_size: int | None) -> tuple[int, int]:
    """Sums over devices in one training step, and their bytes, as the compiled program has them."""
    from follmer.fitting.training import _advance

    text = _advance.hlo(*training_arguments(dim, batch_size))  # type: ignore[attr-defined]
    count, size = 0, 0
    for line in re.findall(r"^.* all-reduce\(.*$", text, re.MULTILINE):
        result = line.split(" all-reduce(")[0]
        shapes = re.findall(r"[fs](\d+)\[([\d,]*)\]", result)
        bits = sum(int(b) * math.prod(map(int, filter(None, s.split(",")))) for b, s in shapes)
        # Inside of the loop over training steps, and there of that along the path.
        times = NUM_STEPS if line.count("while/body") > 1 else 1
        count, size = count + times, size + times * bits // 8
    return count, size


class Step(NamedTuple):
    """What a training step takes: seconds of a path and of a byte that is summed; what is sent."""

    of_path: float
    of_byte: float
    sums: int
    size: int

    def seconds(self, num_paths: int, hosts: int) -> float:
        """On so many hosts: each one's paths, then the sums, in rings."""
        computing = self.of_path * math.ceil(num_paths / hosts)
        if hosts == 1:
            return computing
        adding = 2.0 * (hosts - 1) / hosts * self.size * (self.of_byte + 1.0 / BANDWIDTH)
        return computing + adding + self.sums * 2.0 * math.log2(hosts) * LATENCY


def step_of(found: dict[str, Any], name: str, dim: str) -> Step:
    """The step as measured: what two devices take beyond half of one's time is for the sums."""
    one, two = (found[way][name] / ITERATIONS for way in ("one core", "two devices"))
    sums, size = found["two devices"]["sums"][dim]
    return Step(one / NUM_PATHS, max(two - 0.5 * one, 0.0) / size, sums, size)


def print_hosts(step: Step, dim: str) -> None:
    """Speed-up of training steps over one host's, for several numbers of paths."""
    print(
        f"\na training step, d = {dim}: {1e3 * step.of_path:.2f} ms a path, {step.sums} sums of "
        f"{step.size / step.sums / 1e6:.2f} MB at {1e-9 / max(step.of_byte, 1e-12):.1f} GB a second"
    )
    numbers = (32, 1024, 32768)
    print(f"{'hosts':>6}" + "".join(f"{f'{number} paths':>14}" for number in numbers))
    for hosts in HOSTS:
        ratios = [step.seconds(number, 1) / step.seconds(number, hosts) for number in numbers]
        print(f"{hosts:>6}" + "".join(f"{ratio:>13.1f}×" for ratio in ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    parser.add_argument("--way", choices=WAYS, help="measure one way, and print JSON")
    options = parser.parse_args()
    if options.way is not None:
        print(json.dumps(measured(*WAYS[options.way], options.seconds)))
        return
    found = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.devices", "--way", way]
        command += ["--seconds", str(options.seconds)]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        found[way] = json.loads(told.stdout)
    print(f"{'ms':<42}" + "".join(f"{way:>22}" for way in WAYS))
    for name, base in found["one core"].items():
        cells = [f"{1e3 * found[way][name]:.1f} ({base / found[way][name]:.2f}×)" for way in WAYS]
        print(f"{name:<42}" + "".join(f"{cell:>22}" for cell in cells))
    for name, dim in zip(CASES, found["two devices"]["sums"], strict=False):
        print_hosts(step_of(found, name, dim), dim)


if __name__ == "__main__":
    main()
