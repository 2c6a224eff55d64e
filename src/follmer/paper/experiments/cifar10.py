"""A variation of LeNet5 on CIFAR10."""

import functools
from collections.abc import Iterator, Sequence

import jax

from follmer.paper.experiments import figures
from follmer.paper.experiments.classification import calibration, judged
from follmer.paper.experiments.experiment import Case, Method, Picture, Record, Trial
from follmer.paper.experiments.image_rows import auto_rows, paper_rows
from follmer.paper.experiments.images import along_chains, most_uncertain, photographs
from follmer.paper.experiments.lenet import photographs_network

# The power of the calibrated row's class probabilities: that of averaged points under which 5000
# training rows that are left out are the most likely (`python -m benchmarks.image_calibration`).
_POWER = 1.3
_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    target, x, labels = photographs(tiny)
    yield Case("", target, functools.partial(judged, x=x, labels=labels), (x, labels))


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    if preset == "auto":
        network = photographs_network(jax.random.key(0), tiny)
        return auto_rows(tiny, network, sgld_a=1e-4, power=_POWER)
    return paper_rows(tiny, drift="batch_norm_mlp", gamma=0.05**2, sgld_a=1e-4)


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    images, labels = trials[0].case.data
    yield from calibration(trials, images, labels)
    leading = [trial for trial in trials if trial.method == "n_sfs"] or list(trials)
    yield from most_uncertain(leading, images, labels, _CLASSES)
    yield from along_chains(trials)
    yield from figures.training(preset, trials)
