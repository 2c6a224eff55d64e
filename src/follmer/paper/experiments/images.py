"""What the experiments on images share: targets, rotated digits, and their figures."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from follmer import datasets, plots
from follmer.paper.experiments.experiment import Picture, Trial
from follmer.paper.experiments.lenet import digits_network, photographs_network
from follmer.targets import Target, from_network, priors

# Training and test rows of a tiny run.
_FEW = 64
# The seed of the angles by which the test set is rotated, whatever the run's own.
_ANGLES_SEED = 0
MOST_DEGREES = 30.0

Digits = Float[np.ndarray, "rows 1 28 28"]


class Images(NamedTuple):
    """A posterior of a network, and test images with their labels."""

    target: Target
    x_test: np.ndarray
    y_test: Int[np.ndarray, " rows"]


@functools.lru_cache(maxsize=1)
def digits(tiny: bool) -> Images:
    """MNIST by LeNet5; the same object every time, so that experiments can share their runs."""
    x, y, x_test, y_test, _ = datasets.load("mnist")
    assert x_test is not None
    return _images(digits_network(jax.random.key(0), tiny), x[:, None], y, x_test[:, None], y_test)


@functools.lru_cache(maxsize=1)
def photographs(tiny: bool) -> Images:
    """CIFAR10, pixels scaled to [−1, 1]."""

    def scaled(pixels: np.ndarray | None) -> np.ndarray:
        assert pixels is not None
        return np.ascontiguousarray((2.0 * pixels - 1.0).transpose(0, 3, 1, 2))

    x, y, x_test, y_test, _ = datasets.load("cifar10")
    network = photographs_network(jax.random.key(0), tiny)
    return _images(network, scaled(x), y, scaled(x_test), y_test)


def _images(
    network: object,
    x: np.ndarray,
    y: np.ndarray | None,
    x_test: np.ndarray,
    y_test: np.ndarray | None,
) -> Images:
    assert y is not None
    assert y_test is not None
    rows = slice(_FEW if network.layers[0].out_channels == 2 else None)  # type: ignore[attr-defined]
    target = from_network(
        network,
        data=(x[rows], y[rows]),
        likelihood="categorical",
        prior=priors.Normal(1.0),
    )
    return Images(target, x_test[rows], y_test[rows])


def rotated(images: Digits, degrees: Float[np.ndarray, " rows"] | float) -> Digits:
    """Every image turned by its angle about its middle, bilinearly, with black beyond its edges."""
    from scipy.ndimage import rotate

    angles = np.broadcast_to(degrees, len(images))
    return np.stack(
        [
            rotate(image, angle, axes=(-1, -2), reshape=False, order=1)
            for image, angle in zip(images, angles, strict=True)
        ]
    ).astype(images.dtype)


def angles_of_test(count: int) -> Float[np.ndarray, " rows"]:
    """The angles of the rotated test set, uniform up to 30° either way: the same in every run."""
    rng = np.random.default_rng(_ANGLES_SEED)
    return rng.uniform(-MOST_DEGREES, MOST_DEGREES, count)


def entropy(probabilities: Float[np.ndarray, "rows classes"]) -> Float[np.ndarray, " rows"]:
    """The entropy of each row's prediction, in nats."""
    return -np.sum(probabilities * np.log(np.maximum(probabilities, 1e-30)), axis=1)


def most_uncertain(
    trials: Sequence[Trial], images: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> Iterator[Picture]:
    """The images whose predictions have the largest entropy, by the first of these trials."""
    trial = trials[0]
    probabilities = np.asarray(trial.draws.predict(images).probabilities, float)
    chosen = np.argsort(-entropy(probabilities))[:18]
    figure, axes = plots.image_grid(len(chosen), columns=6)
    for panel, row in zip(axes, chosen, strict=True):
        first, second = np.argsort(-probabilities[row])[:2]
        words = (
            f"{names[labels[row]]}: {names[first]} {probabilities[row, first]:.0%}, "
            f"{names[second]} {probabilities[row, second]:.0%}"
        )
        plots.small_image(panel, images[row], words)
    label = plots.METHODS[trial.method].label
    yield Picture(
        "uncertain",
        "Most uncertain images",
        f"The test images on which {label} is least sure: the true class, then the two most "
        "probable ones.",
        figure,
    )
