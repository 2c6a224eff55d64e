"""Scripts that the tests of devices and processes run in processes of their own."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import jax

TESTS = Path(__file__).parent
# Seconds after which a process that should long have ended is killed.
LIMIT = 600

# A mini-batch logistic regression, small enough to be compiled quickly.
MODEL = """
import jax
import jax.numpy as jnp
import numpy as np
import follmer

SETTINGS = {
    "precondition": "identity",
    "objective": "det",
    "drift": "mlp",
    "drift_options": {"width": 8, "depth": 1},
    "step_rule": "euler_maruyama",
    "num_steps": 4,
    "num_paths": 16,
    "batch_size": 16,
    "num_iterations": 40,
    "chunk_size": 10,
    "audit": False,
    "check": False,
    "progress": False,
}


def rows(count=64):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 2)).astype("float32")
    y = np.where(rng.random(count) < 1 / (1 + np.exp(-x @ [1.0, -1.0])), 1.0, -1.0)
    return {"x": x, "y": y.astype("float32")}


def logistic(data):
    return follmer.Target(
        log_prior=follmer.priors.Normal(sd=2.0),
        log_likelihood=lambda w, batch: jax.nn.log_sigmoid(batch["y"] * (batch["x"] @ w)),
        data=data,
        like=jnp.zeros(2),
    )


def fitted(target, **changes):
    return follmer.fit(target, key=jax.random.key(0), **SETTINGS | changes)


def told(posterior, mesh=None):
    with follmer.on_mesh(mesh):
        draws = posterior.weighted_sample(64, key=jax.random.key(1))
        found = posterior.diagnostics(key=jax.random.key(2))
    # Without an audit there is no EUBO.
    return np.concatenate([np.ravel(draws.position), draws.log_weights, np.nan_to_num(found)])
"""


def environment(num_devices):
    """As the tests', with so many devices on the host and the same cache of programs."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = {
        "JAX_NUM_CPU_DEVICES": str(num_devices),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": jax.config.values["jax_compilation_cache_dir"] or "",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return os.environ | {"PYTHONPATH": path, **options}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(script, num_devices=1):
    """A Python process that has the model and runs a script."""
    return subprocess.Popen(
        [sys.executable, "-c", MODEL + textwrap.dedent(script)],
        env=environment(num_devices),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, limit=LIMIT):
    """What a process printed, and its errors; it is killed after a time."""
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        raise AssertionError(f"the process did not end:\n{out}\n{errors}") from None
    return out, errors


def run(script, num_devices=1):
    """What a script prints."""
    process = start(script, num_devices)
    out, errors = ended(process)
    assert process.returncode == 0, errors
    return out


def start_pair(script, num_devices=1):
    """Two processes of one `jax.distributed` on the loopback, that run the same script."""
    port = free_port()
    joining = "jax.distributed.initialize('127.0.0.1:{}', 2, {}, initialization_timeout=60)\n"
    script = textwrap.dedent(script)
    return [start(joining.format(port, index) + script, num_devices) for index in (0, 1)]


def run_pair(script, num_devices=1):
    """What both print."""
    processes = start_pair(script, num_devices)
    try:
        told = [ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, told, strict=True):
        assert process.returncode == 0, errors
    return [out for out, _ in told]
