"""What plain and weighted draws answer, scalar by scalar, and how well draws can tell at all."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PyTree

from follmer.judging.weights import pareto_smooth
from follmer.targets.space import named_leaves

# Scalars of a draw that are looked at.
_MOST_SCALARS = 4096


class Answers(NamedTuple):
    """The largest differences between plain and weighted moments, over all scalars of a draw.

    `spread_error` is the largest relative standard error of a weighted standard deviation, that of
    the scalar `heaviest`: where tails are heavy, a few draws far out decide it.
    """

    mean_gap: float  # in standard deviations
    spread_gap: float  # of standard deviations, relative
    spread_error: float
    heaviest: str


def compare_answers(draws: PyTree, log_weights: Float[np.ndarray, " draws"]) -> Answers:
    """Plain beside weighted moments of the same draws."""
    names, values = scalars(draws)
    weights = np.exp(pareto_smooth(log_weights)[0])
    mean, sd = moments(values, weights)
    plain_mean, plain_sd = moments(values, np.full(len(values), 1.0 / len(values)))
    # Rounding does not count as moving.
    moving = sd > 1e-12 * np.abs(mean)
    if not moving.any():
        return Answers(0.0, 0.0, 0.0, names[0])
    errors = np.where(moving, spread_errors(values, weights), 0.0)
    # What is not a number is as bad as can be.
    gaps, spreads, errors = (
        np.nan_to_num(one, nan=np.inf)
        for one in (
            np.abs(plain_mean - mean)[moving] / sd[moving],
            np.abs(plain_sd[moving] / sd[moving] - 1.0),
            errors,
        )
    )
    heaviest = names[int(np.argmax(errors))]
    return Answers(float(gaps.max()), float(spreads.max()), float(errors.max()), heaviest)


def scalars(draws: PyTree) -> tuple[list[str], Float[np.ndarray, "draws scalars"]]:
    """Every scalar of a tree of draws by name, up to a number of them."""
    names: list[str] = []
    columns = []
    for leaf, value in named_leaves(draws):
        array = np.asarray(value, float)
        flat = array.reshape(len(array), -1)[:, : _MOST_SCALARS - len(names)]
        places = [",".join(map(str, place)) for place in np.ndindex(array.shape[1:])]
        names += [f"{leaf}[{place}]" if place else leaf for place in places[: flat.shape[1]]]
        columns.append(flat)
    return names, np.concatenate(columns, axis=1)


def moments(
    values: Float[np.ndarray, "draws scalars"], weights: Float[np.ndarray, " draws"]
) -> tuple[Float[np.ndarray, " scalars"], Float[np.ndarray, " scalars"]]:
    """Means and standard deviations by normalised weights."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = weights @ values
        return mean, np.sqrt(np.maximum(weights @ (values - mean) ** 2, 0.0))


def spread_errors(
    values: Float[np.ndarray, "draws scalars"], weights: Float[np.ndarray, " draws"]
) -> Float[np.ndarray, " scalars"]:
    """Relative standard errors of weighted standard deviations, by the delta method."""
    mean, sd = moments(values, weights)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = ((values - mean) / sd) ** 2 - 1.0
        return 0.5 * np.sqrt(weights**2 @ squares**2)
