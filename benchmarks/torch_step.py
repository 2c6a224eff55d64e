"""The DET step of `benchmarks.step` as a plain PyTorch loop, in an environment of its own.

PyTorch is no dependency of the library, so this script imports nothing of follmer:

    python -m venv .venv-torch && .venv-torch/bin/pip install torch==2.13.0 numpy
    .venv-torch/bin/python benchmarks/torch_step.py [--dims 2 124 10401]
    python -m benchmarks.step --torch .venv-torch/bin/python

The same drift (BatchNorm MLP of width 300), the same 32 paths × 20 steps, the same targets and the
same Adam with clipping. Prints one line per target: the dimension and the fastest iteration in ms.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

WIDTH, DEPTH, NUM_PATHS, NUM_STEPS = 300, 4, 32, 20
# Seconds for which each target is measured, at least.
BUDGET = 3.0

LogDensity = Callable[[Any], Any]


def banana() -> LogDensity:
    def log_density(x: Any) -> Any:
        misfit = (x[:, 1] - x[:, 0] ** 2) / 0.5
        return -0.5 * (x[:, 0] ** 2 + misfit**2)

    return log_density


def logistic() -> LogDensity:
    """The shape of a9a: 32561 rows, 123 binary features and a bias, Laplace prior."""
    rng = np.random.default_rng(0)
    table = np.append(rng.random((32561, 123)) < 0.11, np.ones((32561, 1)), 1)
    inputs = torch.tensor(table, dtype=torch.float32)
    labels = torch.tensor(np.where(rng.random(32561) < 0.24, 1.0, -1.0), dtype=torch.float32)

    def log_density(x: Any) -> Any:
        logits = labels * (x @ inputs.T)
        return torch.nn.functional.logsigmoid(logits).sum(1) - x.abs().sum(1)

    return log_density


def network() -> LogDensity:
    """The step-function network: 1-100-100-1, 10401 parameters, 100 points."""
    inputs = torch.linspace(-3.5, 3.5, 100)[:, None]
    outputs = (inputs[:, 0] >= 0).float()

    def log_density(x: Any) -> Any:
        h, start = inputs.expand(len(x), -1, -1), 0
        for rows, columns in [(1, 100), (100, 100), (100, 1)]:
            weight = x[:, start : start + rows * columns].reshape(-1, rows, columns)
            start += rows * columns
            bias = x[:, start : start + columns]
            start += columns
            h = torch.baddbmm(bias[:, None], h, weight)
            h = torch.relu(h) if columns > 1 else h
        misfit = (outputs - h[:, :, 0]) / 0.1
        return -0.5 * (misfit**2).sum(1) - 0.5 * ((x / 0.3) ** 2).sum(1)

    return log_density


TARGETS = {2: banana, 124: logistic, 10401: network}


def drift(dim: int) -> Any:
    layers: list[Any] = []
    for i in range(DEPTH):
        layers.append(torch.nn.Linear(dim + 1 if i == 0 else WIDTH, WIDTH))
        layers += [torch.nn.BatchNorm1d(WIDTH, affine=False), torch.nn.Softplus()]
    last = torch.nn.Linear(WIDTH, dim)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    return torch.nn.Sequential(*layers, last)


def iteration(net: Any, optimizer: Any, log_density: LogDensity, dim: int) -> None:
    """E[ Σ |u|²Δt/2 − ln f(x_k) ] through the path, and one step of Adam."""
    dt = 1.0 / NUM_STEPS
    x, cost = torch.zeros(NUM_PATHS, dim), torch.zeros(NUM_PATHS)
    for j in range(NUM_STEPS):
        time_column = torch.full((NUM_PATHS, 1), j * dt)
        u = net(torch.cat([x, time_column], 1))
        cost = cost + 0.5 * dt * (u**2).sum(1)
        x = x + dt * u + dt**0.5 * torch.randn_like(x)
    loss = (cost - log_density(x) - 0.5 * (x**2).sum(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()


def fastest(dim: int) -> float:
    """Seconds of the fastest iteration."""
    torch.manual_seed(0)
    net, log_density = drift(dim), TARGETS[dim]()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    times: list[float] = []
    while len(times) < 5 or sum(times) < BUDGET:
        began = time.perf_counter()
        iteration(net, optimizer, log_density, dim)
        times.append(time.perf_counter() - began)
    return min(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dims", type=int, nargs="+", choices=sorted(TARGETS), default=[*TARGETS])
    for dim in parser.parse_args().dims:
        print(dim, f"{fastest(dim) * 1e3:.2f}", flush=True)


if __name__ == "__main__":
    main()
