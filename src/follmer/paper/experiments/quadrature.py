"""The exact posterior of the unmixing model with three materials, on grids of the simplex."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from follmer.paper.experiments.hyperspectral import Abundances, Reduced, Scene, reduced

_COARSE, _FINE = 48, 41  # grid points along a side
_FALLS = (30.0, 14.0)  # nats below the top that refined grids still hold
_AT_ONCE = 500  # pixels
_ROUNDS = 2  # for σ²: each leaves about a hundredth of the error
_DRAWS = 400

Grids = Float[Array, "pixels points materials"]


class Exact(NamedTuple):
    """Means and 90 % intervals of the abundances, at the most probable σ².

    With hundreds of pixels of hundreds of bands the posterior of σ² is a spike: its width changes
    nothing that can be seen here.
    """

    mean: Abundances
    lower: Abundances
    upper: Abundances
    variance: float


def exact_posterior(scene: Scene) -> Exact:
    """Every pixel's posterior on a grid fitted to where its mass is."""
    pixels = reduced(scene.spectra, scene.endmembers)
    variance = float(np.mean(pixels.misfit)) / 0.5
    for _ in range(_ROUNDS):
        # EM: the expected square misfit per unit of noise.
        terms = [_expected_variance(part, variance) for part in _parts(pixels)]
        variance = float(np.mean(np.concatenate(terms)))
    found = [_moments(part, variance) for part in _parts(pixels)]
    mean, lower, upper = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return Exact(mean, lower, upper, variance)


def _parts(pixels: Reduced) -> list[Reduced]:
    starts = range(0, len(pixels.misfit), _AT_ONCE)
    return [
        pixels._replace(
            fitted=pixels.fitted[start : start + _AT_ONCE],
            misfit=pixels.misfit[start : start + _AT_ONCE],
        )
        for start in starts
    ]


@jax.jit
def _expected_variance(pixels: Reduced, variance: float) -> Float[Array, " pixels"]:
    grid, weights, _ = _posterior(pixels, variance)
    return jnp.sum(weights * _misfit(pixels, grid) / jnp.sum(grid**2, axis=-1), axis=1)


def _moments(pixels: Reduced, variance: float) -> tuple[Abundances, Abundances, Abundances]:
    grid, weights, cell = map(np.asarray, _compiled(pixels, variance))
    mean = np.einsum("ps,psm->pm", weights, grid)
    # Evenly spread quantiles of each pixel's cells, shaken within the cells.
    rng = np.random.default_rng(0)
    sums = np.cumsum(weights, axis=1)
    levels = (np.arange(_DRAWS) + 0.5) / _DRAWS
    places = np.stack([np.searchsorted(one / one[-1], levels) for one in sums])
    draws = np.take_along_axis(grid[..., :2], places[..., None], axis=1)
    draws = draws + cell[:, None] * rng.uniform(-0.5, 0.5, size=draws.shape)
    draws = np.concatenate([draws, 1 - draws.sum(axis=-1, keepdims=True)], axis=-1).clip(0, 1)
    lower, upper = np.quantile(draws, [0.05, 0.95], axis=1)
    return mean, lower, upper


def _posterior(
    pixels: Reduced, variance: float
) -> tuple[Grids, Float[Array, "pixels points"], Float[Array, "pixels 2"]]:
    """A grid of abundances for each pixel, its points' weights and the size of its cells."""
    number = len(pixels.misfit)
    low, high = jnp.zeros((number, 2)), jnp.ones((number, 2))
    for size, fall in zip((_COARSE, _FINE), _FALLS, strict=True):
        grid, cell = _grid(low, high, size)
        logs = _log_posterior(pixels, grid, variance)
        held = (logs > logs.max(axis=1, keepdims=True) - fall)[..., None]
        low = jnp.where(held, grid[..., :2], 1.0).min(axis=1) - 1.5 * cell
        high = jnp.where(held, grid[..., :2], 0.0).max(axis=1) + 1.5 * cell
        low, high = low.clip(0, 1), high.clip(0, 1)
    grid, cell = _grid(low, high, _FINE)
    logs = _log_posterior(pixels, grid, variance)
    weights = jnp.exp(logs - logs.max(axis=1, keepdims=True))
    return grid, weights / weights.sum(axis=1, keepdims=True), cell


def _grid(
    low: Float[Array, "pixels 2"], high: Float[Array, "pixels 2"], size: int
) -> tuple[Grids, Float[Array, "pixels 2"]]:
    """Centres of size × size cells of a box of the first two abundances."""
    cell = (high - low) / size
    steps = jnp.arange(size) + 0.5
    both = jnp.stack(jnp.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    first = low[:, None] + cell[:, None] * both
    return jnp.concatenate([first, 1 - first.sum(axis=-1, keepdims=True)], axis=-1), cell


def _log_posterior(pixels: Reduced, grid: Grids, variance: float) -> Float[Array, "pixels points"]:
    scale = jnp.sum(grid**2, axis=-1) * variance
    logs = -0.5 * pixels.num_bands * (jnp.log(scale) + _misfit(pixels, grid) / scale)
    return jnp.where(grid[..., 2] >= 0, logs, -jnp.inf)


def _misfit(pixels: Reduced, grid: Grids) -> Float[Array, "pixels points"]:
    away = (pixels.fitted[:, None] - grid) @ pixels.factor.T
    return jnp.sum(away**2, axis=-1) / pixels.num_bands + pixels.misfit[:, None]


_compiled = jax.jit(_posterior)
