"""What the experiments on images share: targets, rotated digits, and their figures."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from follmer import datasets, plots
from follmer.paper.experiments import image_plots
from follmer.paper.experiments.experiment import Picture, Trial
from follmer.paper.experiments.lenet import LeNet, digits_network, photographs_network
from follmer.targets import Target, from_network, priors
from follmer.targets.density import values_by_batch

# Training and test rows of a tiny run.
_FEW = 64
# The seed of the angles by which the test set is rotated, whatever the run's own.
_ANGLES_SEED = 0
MOST_DEGREES = 30.0
# States of each chain in the figure of their log posteriors, and the training rows that tell it.
_STATES, _ROWS = 20, 2048
# Draws whose log posteriors are computed at once.
_AT_ONCE = 10

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
    network = digits_network(jax.random.key(0), tiny)
    return _images(network, (x[:, None], y), (x_test[:, None], y_test), tiny)


@functools.lru_cache(maxsize=1)
def photographs(tiny: bool) -> Images:
    """CIFAR10, pixels scaled to [−1, 1]."""

    def scaled(pixels: np.ndarray | None) -> np.ndarray:
        assert pixels is not None
        return np.ascontiguousarray((2.0 * pixels - 1.0).transpose(0, 3, 1, 2))

    x, y, x_test, y_test, _ = datasets.load("cifar10")
    network = photographs_network(jax.random.key(0), tiny)
    return _images(network, (scaled(x), y), (scaled(x_test), y_test), tiny)


def _images(network: LeNet, train: tuple[Any, Any], test: tuple[Any, Any], tiny: bool) -> Images:
    rows = slice(_FEW if tiny else None)
    x, y = train
    target = from_network(
        network,
        data=(x[rows], y[rows]),
        likelihood="categorical",
        prior=priors.Normal(1.0),
    )
    x_test, y_test = test
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


def along_chains(trials: Sequence[Trial]) -> Iterator[Picture]:
    """The log posterior along the chains of the ensemble, where there is one."""
    own = [trial for trial in trials if trial.method in ("ensemble", "n_sfs")]
    chains = [getattr(trial.draws.posterior.sampler, "draws", None) for trial in own[:1]]
    if not chains or chains[0] is None or len(chains[0]) == 1:
        return
    target, draws = own[0].case.target, np.asarray(chains[0])
    places = np.unique(np.linspace(0, draws.shape[1] - 1, _STATES).astype(int))
    logs = log_posteriors(target, draws[:, places].reshape(-1, draws.shape[-1]), _ROWS)
    figure, axes = plots.figure()
    image_plots.traces(
        axes[0, 0], places, logs.reshape(len(draws), -1), label="log posterior density"
    )
    yield Picture(
        "chains",
        "Along the chains",
        "The log posterior density (without its constant, as some training images tell it) of the "
        "states that are kept of each chain. Lines that still fall or rise belong to chains that "
        "have not reached equilibrium.",
        figure,
    )


def log_posteriors(target: Any, x: np.ndarray, num_rows: int) -> Float[np.ndarray, " draws"]:
    """The target's log density at flat draws, as a sample of the training rows tells it."""
    batch = target.random_batch(jax.random.key(0), min(num_rows, target.num_data))
    # The last are computed twice where the number is not even, so that all blocks have one size.
    starts = range(0, len(x), _AT_ONCE)
    rows = [np.minimum(np.arange(start, start + _AT_ONCE), len(x) - 1) for start in starts]
    parts = [values_by_batch(target, jnp.asarray(x[some], target.dtype), batch) for some in rows]
    return np.concatenate(parts)[: len(x)].astype(float)


def most_uncertain(
    trials: Sequence[Trial], images: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> Iterator[Picture]:
    """The images whose predictions have the largest entropy, by the first of these trials."""
    trial = trials[0]
    probabilities = np.asarray(trial.draws.predict(images).probabilities, float)
    chosen = np.argsort(-entropy(probabilities))[:18]
    figure, axes = image_plots.image_grid(len(chosen), columns=6)
    for panel, row in zip(axes, chosen, strict=True):
        first, second = np.argsort(-probabilities[row])[:2]
        words = (
            f"{names[labels[row]]}:\n{names[first]} {probabilities[row, first]:.0%},\n"
            f"{names[second]} {probabilities[row, second]:.0%}"
        )
        image_plots.small_image(panel, images[row], words)
    label = plots.METHODS[trial.method].label
    yield Picture(
        "uncertain",
        "Most uncertain images",
        f"The test images on which {label} is least sure: the true class, then the two most "
        "probable ones.",
        figure,
    )
