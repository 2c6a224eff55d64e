"""Milliseconds per gradient of LeNet5's likelihood for many networks at once, and where they go.

    python -m benchmarks.images [--networks 8] [--rows 128] [--drift zero]

Images are random: no data set is needed. Every ratio compares two things measured in the same run.
PyTorch is installed into an environment of its own, in a temporary folder.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import follmer
from benchmarks.step import matmul_rate, seconds
from follmer.paper.experiments.lenet import LeNet, digits_network

# PyTorch's version, installed by pip beside ours.
TORCH = "2.13.0"
# Images that stand for a data set.
NUM_DATA = 2048
# Gradients in one call: as in training, where memory is got once for many.
REPEATS = 4
# Products of one image: multiply and add of both convolutions and three linear layers.
FORWARD = 2 * (576 * 25 * 6 + 64 * 150 * 16 + 256 * 120 + 120 * 84 + 84 * 10)
# Backwards twice that, but for the first layer's gradient by its images, which nobody asks for.
FLOPS = 3 * FORWARD - 2 * 576 * 25 * 6


def target_of(network: LeNet) -> follmer.Target:
    rng = np.random.default_rng(0)
    x = rng.random((NUM_DATA, 1, 28, 28)).astype(np.float32)
    return follmer.from_network(
        network, data=(x, rng.integers(0, 10, NUM_DATA)), likelihood="categorical"
    )


def repeated(gradient: Callable[[jax.Array, Any], jax.Array]) -> Callable[..., jax.Array]:
    """Some descents in a row, so that nothing is computed twice for the same parameters."""

    def run(x: jax.Array, batch: Any) -> jax.Array:
        return jax.lax.fori_loop(0, REPEATS, lambda _, x: x - 1e-9 * gradient(x, batch), x)

    return run


def as_users_write_it(network: LeNet) -> Callable[[jax.Array, Any], jax.Array]:
    """The same gradient by `jax.vmap` of Equinox's own convolutions."""
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    _, unravel = jax.flatten_util.ravel_pytree(parameters)

    def log_likelihood(x: jax.Array, batch: Any) -> jax.Array:
        outputs = jax.vmap(eqx.combine(unravel(x), rest))(batch["x"])
        labels = batch["y"][:, None]
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(outputs), labels, 1))

    return lambda x, batch: jax.vmap(jax.grad(log_likelihood), (0, None))(x, batch)


def torch_seconds(num_networks: int, num_rows: int) -> float | str:
    """The same gradient by PyTorch's `vmap`, in an environment of its own; else why there is none.

    The environment is made in a temporary folder and used again by the next run.
    """
    folder = Path(tempfile.gettempdir()) / f"follmer-benchmark-torch-{TORCH}"
    python = folder / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", f"torch=={TORCH}", "numpy"],
    ]
    ready = folder / "ready"
    for command in [] if ready.exists() else commands:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            return f"not measured: {' '.join(command[2:])} failed"
    ready.touch()
    script = Path(__file__).with_name("torch_images.py")
    command = [str(python), str(script), str(num_networks), str(num_rows)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(found.stdout) if found.returncode == 0 else "not measured: PyTorch failed"


def gradients(target: follmer.Target, network: LeNet, num_networks: int, num_rows: int) -> None:
    """Prints what a gradient of the likelihood takes, by each way."""
    x = 0.1 * jax.random.normal(jax.random.key(0), (num_networks, target.dim))
    batch = target.random_batch(jax.random.key(1), num_rows)
    rate = matmul_rate()

    def ours(x: jax.Array, batch: Any) -> jax.Array:
        return jax.vmap(jax.grad(target.log_likelihood), (0, None))(x, batch)

    found: dict[str, float | str] = {
        "follmer": seconds(repeated(ours), x, batch)[1] / REPEATS,
        "jax.vmap of Equinox": seconds(repeated(as_users_write_it(network)), x, batch)[1] / REPEATS,
        "PyTorch's vmap": torch_seconds(num_networks, num_rows),
    }
    print(f"plain float32 matmul {rate / 1e9:.0f} GFLOP/s")
    print(f"{'likelihood gradient':>22} {'ms':>8} {'of peak':>8}")
    for name, taken in found.items():
        if isinstance(taken, str):
            print(f"{name:>22} {taken}")
            continue
        share = FLOPS * num_networks * num_rows / taken / rate
        print(f"{name:>22} {taken * 1e3:>8.1f} {share:>8.1%}")


def iteration(target: follmer.Target, drift: str, num_paths: int, num_rows: int) -> None:
    """Prints what one iteration of training a flow takes, and its parts, measured apart."""
    algorithm = follmer.NSFS(
        target,
        objective="stl",
        drift=drift,
        num_steps=1 if drift == "zero" else 20,
        num_paths=num_paths,
        batch_size=num_rows,
    )
    state = algorithm.init(jax.random.key(0))
    key = jax.random.key(1)
    batch = target.random_batch(key, num_rows)
    _, whole = seconds(lambda s, k, b: algorithm.step(s, k, b), state, key, batch)
    problem = algorithm.process.problem(batch, num_paths)
    _, noise = seconds(
        lambda k: jax.vmap(problem.diffusion.noise)(jax.random.split(k, num_paths)), key
    )

    def path_cost(parameters: Any, key: jax.Array) -> jax.Array:
        steered = algorithm.process.drift_at(parameters, batch, inference=False)
        return jnp.mean(problem.simulate(steered, key).kl)

    _, through_path = seconds(jax.grad(path_cost), state.parameters, key)
    ends = 0.1 * jax.random.normal(key, (num_paths, target.dim))
    _, likelihood = seconds(
        lambda x, b: jax.vmap(jax.grad(lambda x: target.log_density(x, b)))(x), ends, batch
    )
    adam = optax.adam(1e-3)
    _, optimiser = seconds(
        lambda p, s: adam.update(p, s)[0], state.parameters, adam.init(state.parameters)
    )
    print(
        f"\none iteration of STL, drift {drift}, {num_paths} paths, {num_rows} images: "
        f"{whole * 1e3:.1f} ms"
    )
    parts = {
        "noise": noise,
        "drift": max(through_path - noise, 0.0),
        "likelihood": likelihood,
        "optimiser": optimiser,
    }
    for name, taken in parts.items():
        print(f"{name:>22} {taken * 1e3:>8.1f} {taken / whole:>8.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", type=int, default=8)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--drift", choices=sorted(follmer.drifts.DRIFTS), default="zero")
    options = parser.parse_args()
    network = digits_network(jax.random.key(0))
    target = target_of(network)
    print(
        f"LeNet5, {target.dim} parameters: {options.networks} networks × {options.rows} images, "
        f"{FLOPS * options.networks * options.rows / 1e9:.2f} GFLOP a gradient"
    )
    gradients(target, network, options.networks, options.rows)
    iteration(target, options.drift, options.networks, options.rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory {peak:.2f} GiB, all of the above and JAX itself included")


if __name__ == "__main__":
    main()
