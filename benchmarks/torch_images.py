"""Seconds per gradient of LeNet5's likelihood for many networks at once by PyTorch's `vmap`.

    python benchmarks/torch_images.py 8 128

Run by `benchmarks.images` in an environment of PyTorch's own, so it imports nothing of follmer.
"""

import sys
import time
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from torch import nn  # type: ignore[import-not-found, unused-ignore]


def seconds(num_networks: int, num_rows: int) -> float:
    """The fastest of the gradients that fit in a second."""
    network = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )
    parameters = {
        name: torch.randn(num_networks, *value.shape) * 0.1
        for name, value in network.named_parameters()
    }
    x, y = torch.rand(num_rows, 1, 28, 28), torch.randint(0, 10, (num_rows,))

    def loss(parameters: Any) -> Any:
        outputs = torch.func.functional_call(network, parameters, (x,))
        return nn.functional.cross_entropy(outputs, y, reduction="sum")

    gradient = torch.func.vmap(torch.func.grad(loss))
    gradient(parameters)
    times: list[float] = []
    while len(times) < 3 or sum(times) < 1.0:
        began = time.perf_counter()
        gradient(parameters)
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    print(seconds(int(sys.argv[1]), int(sys.argv[2])))
