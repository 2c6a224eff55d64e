"""LeNet5 on MNIST: the test set as it is, and rotated."""

import functools
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from follmer import plots
from follmer.paper.experiments import figures, image_plots
from follmer.paper.experiments.classification import calibration, judged
from follmer.paper.experiments.experiment import Case, Method, Picture, Record, Trial
from follmer.paper.experiments.image_rows import auto_rows, paper_rows
from follmer.paper.experiments.images import (
    along_chains,
    angles_of_test,
    digits,
    entropy,
    most_uncertain,
    rotated,
)
from follmer.paper.experiments.lenet import digits_network

PLAIN, ROTATED = "test set", "rotated by up to 30°"
# Angles of the figure, and images that are turned by each.
_DEGREES = np.arange(0, 91, 15)
_TURNED = 500


def cases(seed: int, tiny: bool) -> Iterator[Case]:
    target, x, labels = digits(tiny)
    turned = rotated(x, angles_of_test(len(x)))
    for label, images in ((PLAIN, x), (ROTATED, turned)):
        judge = functools.partial(judged, x=images, labels=labels)
        yield Case(label, target, judge, (images, labels))


def methods(preset: str, tiny: bool) -> dict[str, Method]:
    if preset == "auto":
        return auto_rows(tiny, digits_network(jax.random.key(0), tiny), sgld_a=7e-5)
    return paper_rows(tiny, drift="resnet", gamma=0.1**2, sgld_a=7e-5)


def pictures(preset: str, trials: Sequence[Trial], records: Sequence[Record]) -> Iterator[Picture]:
    by_case = figures.by_case(trials)
    for label, own in by_case.items():
        (picture,) = calibration(own, *own[0].case.data)
        name = "calibration" if label == PLAIN else "calibration_rotated"
        yield picture._replace(name=name, title=f"Calibration, {label}")
    own = by_case[PLAIN]
    images, labels = own[0].case.data
    leading = [trial for trial in own if trial.method == "n_sfs"] or own
    yield from most_uncertain(leading, images, labels, [str(digit) for digit in range(10)])
    yield _by_angle(own, images[:_TURNED], labels[:_TURNED])
    yield from along_chains(own)
    yield from figures.training(preset, own)


def _by_angle(trials: Sequence[Trial], images: np.ndarray, labels: np.ndarray) -> Picture:
    """Accuracy and predictive entropy of all methods, as the digits are turned."""
    accuracies: dict[str, list[float]] = {trial.method: [] for trial in trials}
    entropies: dict[str, list[float]] = {trial.method: [] for trial in trials}
    for degrees in _DEGREES:
        turned = rotated(images, float(degrees))
        for trial in trials:
            found = np.asarray(trial.draws.predict(turned).probabilities, float)
            accuracies[trial.method].append(float(np.mean(found.argmax(axis=1) == labels)))
            entropies[trial.method].append(float(np.mean(entropy(found))))
    figure, axes = plots.panels(["accuracy", "mean predictive entropy (nats)"], columns=2)
    for panel, curves in zip(axes, (accuracies, entropies), strict=True):
        image_plots.by_angle(panel, _DEGREES, {name: np.array(one) for name, one in curves.items()})
    return Picture(
        "angles",
        "Turned digits",
        f"The first {len(images)} test digits turned by one angle after the other. Accuracy falls "
        "for every method; one that knows what it does not know has an entropy that rises with it.",
        figure,
    )
