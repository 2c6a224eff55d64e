"""The paper's grid search over gamma, by the ELBO of short runs."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from follmer.errors import NonFiniteError
from follmer.nsfs import NSFS

GAMMAS = (0.5**2, 0.2**2, 0.1**2, 0.05**2, 0.01**2)
# A short run is this share of the whole one, but not below a number of iterations.
_SHARE, _FEWEST = 0.1, 100


class Choice(NamedTuple):
    """The algorithm with the best gamma, why in words, and what the search cost."""

    algorithm: NSFS
    words: str
    gradient_evaluations: int


def search_gamma(algorithm: NSFS, elbo_after_training: Callable[[NSFS], float]) -> Choice:
    """Train briefly with every gamma of the grid and choose the one of the highest ELBO.

    The ELBO is that of the training data, as it is the paper's choice too; a run that cannot be
    trained is out.
    """
    iterations = max(int(_SHARE * algorithm.num_iterations), _FEWEST)
    iterations = min(iterations, algorithm.num_iterations)
    elbos: list[float] = []
    failure: NonFiniteError | None = None
    for gamma in GAMMAS:
        short = algorithm.changed(gamma=gamma, num_iterations=iterations)
        try:
            elbo = elbo_after_training(short)
        except NonFiniteError as error:
            elbo, failure = float("-inf"), error
        elbos.append(elbo if np.isfinite(elbo) else float("-inf"))
    if failure is not None and not np.isfinite(elbos).any():
        raise failure
    best = GAMMAS[int(np.argmax(elbos))]
    listing = ", ".join(f"{gamma:g}: {elbo:.4g}" for gamma, elbo in zip(GAMMAS, elbos, strict=True))
    words = f"gamma {best:g}, by the ELBO of runs of {iterations} iterations ({listing})"
    cost = len(GAMMAS) * algorithm.gradient_evaluations(iterations)
    return Choice(algorithm.changed(gamma=best), words, cost)
