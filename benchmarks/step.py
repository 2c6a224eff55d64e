"""Milliseconds per training iteration with the paper's drift, and where they go.

    python -m benchmarks.step [--dims 2 124 10401] [--drift batch_norm_mlp] [--objectives det stl]
                              [--torch PYTHON]

An iteration is measured as training runs it: many in one program. With `--torch`, a Python that has
PyTorch runs `torch_step.py` beside it. Every ratio compares two things measured in the same run.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import follmer
from follmer.tools.normals import standard_normals

WIDTH, NUM_PATHS, NUM_STEPS = 300, 32, 20
# Iterations in one program.
ITERATIONS = 4
# Layers that see the time alone are computed once for all paths.
OF_TIME = (".time.", ".modulations[")


def banana() -> follmer.Target:
    norm = jax.scipy.stats.norm.logpdf
    return follmer.Target(lambda x: norm(x[0]) + norm(x[1], x[0] ** 2, 0.5), like=jnp.zeros(2))


def logistic() -> follmer.Target:
    """The shape of a9a: 32561 rows, 123 binary features and a bias, Laplace prior."""
    rng = np.random.default_rng(0)
    inputs = np.append(rng.random((32561, 123)) < 0.11, np.ones((32561, 1)), 1).astype("float32")
    labels = np.where(rng.random(32561) < 0.24, 1.0, -1.0).astype("float32")
    return follmer.Target(
        log_prior=lambda theta: -jnp.sum(jnp.abs(theta)) - 124 * jnp.log(2.0),
        log_likelihood=lambda theta, batch: jax.nn.log_sigmoid(batch[1] * (batch[0] @ theta)),
        data=(inputs, labels),
        like=jnp.zeros(124),
    )


def network() -> follmer.Target:
    """The step-function network: 1-100-100-1, 10401 parameters, 100 points."""
    inputs = jnp.linspace(-3.5, 3.5, 100)[:, None]
    outputs = (inputs[:, 0] >= 0).astype(jnp.float32)
    like = [
        (jnp.zeros((1, 100)), jnp.zeros(100)),
        (jnp.zeros((100, 100)), jnp.zeros(100)),
        (jnp.zeros((100, 1)), jnp.zeros(1)),
    ]

    def log_prior(theta: Any) -> jax.Array:
        flat, _ = jax.flatten_util.ravel_pytree(theta)
        return jnp.sum(jax.scipy.stats.norm.logpdf(flat, 0, 0.3))

    def log_likelihood(theta: Any, batch: Any) -> jax.Array:
        h = batch[0]
        for weight, bias in theta[:-1]:
            h = jax.nn.relu(h @ weight + bias)
        mean = (h @ theta[-1][0] + theta[-1][1])[:, 0]
        return jax.scipy.stats.norm.logpdf(batch[1], mean, 0.1)

    return follmer.Target(
        log_prior=log_prior, log_likelihood=log_likelihood, data=(inputs, outputs), like=like
    )


TARGETS: dict[int, Callable[[], follmer.Target]] = {2: banana, 124: logistic, 10401: network}


def seconds(function: Callable[..., Any], *args: Any, budget: float = 1.0) -> tuple[float, float]:
    """Seconds to compile, and the fastest of the runs that fit in the budget."""
    began = time.perf_counter()
    compiled = jax.jit(function).lower(*args).compile()
    compile_seconds = time.perf_counter() - began
    jax.block_until_ready(compiled(*args))
    times: list[float] = []
    while len(times) < 3 or sum(times) < budget:
        began = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - began)
    return compile_seconds, min(times)


def matmul_rate() -> float:
    """FLOP/s of a plain float32 matrix product."""
    size = 2048
    matrix = jnp.ones((size, size))
    return 2 * size**3 / seconds(lambda a: a @ a, matrix)[1]


def drift_flops(parameters: Any) -> float:
    """Matrix-product FLOPs of the drift in one iteration: forward, and twice that backward."""
    per_state = 2 * sum(
        leaf.size
        for path, leaf in jax.tree.leaves_with_path(parameters)
        if leaf.ndim == 2 and not any(name in jax.tree_util.keystr(path) for name in OF_TIME)
    )
    return 3 * per_state * NUM_PATHS * NUM_STEPS


def torch_seconds(python: str, dims: list[int]) -> dict[int, float]:
    """Seconds per iteration of the plain PyTorch loop, by dimension."""
    script = Path(__file__).with_name("torch_step.py")
    command = [python, str(script), "--dims", *map(str, dims)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {int(dim): float(milliseconds) / 1e3 for dim, milliseconds in rows}


def iterations(algorithm: follmer.NSFS, state: Any, key: jax.Array, data: Any) -> Any:
    """Some training steps, as `fit` runs them."""

    def body(i: jax.Array, state: Any) -> Any:
        return algorithm.step(state, jax.random.fold_in(key, i), data)[0]

    return jax.lax.fori_loop(0, ITERATIONS, body, state)


def measure(dim: int, drift: str, objective: str, rate: float, torch: float | None) -> str:
    target = TARGETS[dim]()
    algorithm = follmer.NSFS(
        target,
        objective=objective,
        drift=drift,
        drift_options={"width": WIDTH},
        num_paths=NUM_PATHS,
        num_steps=NUM_STEPS,
        grid="uniform",
        step_rule="euler_maruyama",
    )
    state = algorithm.init(jax.random.key(0))
    key = jax.random.key(1)
    compiling, step = seconds(
        lambda s, k, data: iterations(algorithm, s, k, data), state, key, target.data
    )
    step /= ITERATIONS
    problem = algorithm.process.problem(target.data, NUM_PATHS)
    _, noise = seconds(_noise, key, jnp.zeros((NUM_STEPS, NUM_PATHS, dim)))
    noise /= ITERATIONS

    def path_cost(parameters: Any, key: jax.Array) -> jax.Array:
        steered = algorithm.process.drift_at(parameters, target.data, inference=False)
        return jnp.mean(problem.simulate(steered, key, "kl").kl)

    _, through_path = seconds(jax.grad(path_cost), state.parameters, key)

    def likelihood(ends: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(jax.vmap(lambda x: target.log_density(x, data))(ends))

    ends = jax.random.normal(key, (NUM_PATHS, dim))
    _, density = seconds(jax.grad(likelihood), ends, target.data)
    achieved = drift_flops(eqx.filter(state.parameters, eqx.is_array)) / step / rate
    return (
        f"{dim:>6} {objective:>10} {step * 1e3:>8.2f} {noise * 1e3:>7.2f} "
        f"{(through_path - noise) * 1e3:>7.2f} {density * 1e3:>11.2f} {achieved:>8.1%} "
        f"{compiling:>10.1f} {'' if torch is None else f'{torch / step:.1f}':>8}"
    )


def _noise(key: jax.Array, like: jax.Array) -> jax.Array:
    """The noise of some iterations, one after the other."""

    def body(i: jax.Array, rows: jax.Array) -> jax.Array:
        drawn = standard_normals(jax.random.fold_in(key, i), rows.shape)
        return jax.lax.optimization_barrier(drawn)

    return jax.lax.fori_loop(0, ITERATIONS, body, like)


def import_seconds() -> float:
    command = [
        sys.executable,
        "-c",
        "import time; t=time.time(); import follmer; print(time.time()-t)",
    ]
    return min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in "ab")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dims", type=int, nargs="+", choices=sorted(TARGETS), default=[*TARGETS])
    parser.add_argument("--drift", choices=sorted(follmer.drifts.DRIFTS), default="batch_norm_mlp")
    objectives = sorted(follmer.objectives.OBJECTIVES)
    parser.add_argument("--objectives", nargs="+", choices=objectives, default=["det", "stl"])
    parser.add_argument("--torch", help="a Python that has torch==2.13.0")
    options = parser.parse_args()
    rate = matmul_rate()
    beside = torch_seconds(options.torch, options.dims) if options.torch else {}
    print(f"drift {options.drift} of width {WIDTH}, {NUM_PATHS} paths, {NUM_STEPS} steps")
    print(f"plain float32 matmul {rate / 1e9:.0f} GFLOP/s; import follmer {import_seconds():.2f} s")
    print(
        f"{'dim':>6} {'objective':>10} {'ms/iter':>8} {'noise':>7} {'path':>7} {'likelihood':>11} "
        f"{'of peak':>8} {'compile s':>10} {'x torch':>8}"
    )
    for dim in options.dims:
        for objective in options.objectives:
            torch = beside.get(dim) if objective == "det" else None
            print(measure(dim, options.drift, objective, rate, torch), flush=True)


if __name__ == "__main__":
    main()
