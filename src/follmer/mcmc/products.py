"""Densities of independent coordinates fitted to draws: a mixture of normals along every axis.

A product of d double wells has 2^d modes, too many for a mixture of as many Gaussians, and is known
by its d margins. Axes are the coordinates themselves, or independent components of the draws.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from follmer.mcmc.mixtures import finite_or_none, log_sum, safe_cholesky

# Numbers of normals along an axis that are tried.
_SIZES = (1, 2, 6)
# Nats per held-out draw that more normals along an axis must gain.
_WORTH = 1e-3
# Steps of EM at most, and nats per draw that the last one gains.
_ITERATIONS, _CONVERGED = 40, 1e-5
# Draws that a fit looks at.
_MOST_DRAWS = 4096
# Rounds of importance sampling, and draws of each.
_ROUNDS, _NUM_REWEIGHED = 2, 8192
# The narrowest normal, in units of the axis's spread over the number of normals.
_NARROWEST = 0.05
# FastICA (Hyvärinen & Oja 2000): rounds, and the change of direction below which it has settled.
_ROTATIONS, _SETTLED = 60, 1e-4
# Draws per coordinate from which independent components can be told.
_DRAWS_EACH = 30


class Product(NamedTuple):
    """Π_i Σ_c share_ic N(z_i; mean_ic, sd_ic²) in z, where x = origin + axes z."""

    origin: Float[np.ndarray, " dim"]
    axes: Float[np.ndarray, "dim dim"]
    shares: Float[np.ndarray, "dim components"]
    means: Float[np.ndarray, "dim components"]
    sds: Float[np.ndarray, "dim components"]

    def log_density(self, x: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, " draws"]:
        z = np.linalg.solve(self.axes, (x - self.origin).T).T
        log_det = np.linalg.slogdet(self.axes)[1]
        return _axis_logs(z, self.shares, self.means, self.sds).sum(axis=1) - log_det

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "count dim"]:
        edges = np.cumsum(self.shares, axis=1)
        uniform = rng.uniform(size=(count, len(edges), 1)) * edges[:, -1:]
        chosen = np.sum(uniform > edges, axis=2)
        axis = np.arange(len(edges))
        noise = rng.standard_normal(chosen.shape)
        z = self.means[axis, chosen] + self.sds[axis, chosen] * noise
        return self.origin + z @ self.axes.T


def fit_product(
    x: Float[np.ndarray, "draws dim"],
    held_out: Float[np.ndarray, "others dim"],
    rng: np.random.Generator,
) -> Product:
    """The product along the coordinates or along independent components: whichever fits others."""
    x = x[rng.permutation(len(x))[:_MOST_DRAWS]]
    origin = x.mean(axis=0)
    plain = _along(origin, np.diag(x.std(axis=0) + np.finfo(float).tiny), x, held_out)
    if x.shape[1] == 1 or len(x) < _DRAWS_EACH * x.shape[1]:
        return plain
    root = safe_cholesky(np.cov(x.T))
    turned = _along(origin, root @ independent_rotation(x, root, rng), x, held_out)
    scores = [np.mean(one.log_density(held_out)) for one in (plain, turned)]
    return plain if scores[0] >= scores[1] else turned


def reweighed_product(
    product: Product,
    log_density: Callable[[np.ndarray], np.ndarray],
    judges: Float[np.ndarray, "others dim"],
    rng: np.random.Generator,
    most_draws: int = _NUM_REWEIGHED,
) -> Product:
    """The product after rounds of drawing from it, weighing by the target, and fitting again."""
    score = np.mean(product.log_density(judges))
    for _ in range(_ROUNDS):
        x = product.draw(min(_NUM_REWEIGHED, most_draws), rng)
        logs = finite_or_none(log_density(x)) - product.log_density(x)
        if not np.isfinite(logs.max()):
            break
        weights = np.exp(logs - logs.max())
        weights = np.minimum(weights, weights.mean() * np.sqrt(len(weights)))
        z = np.linalg.solve(product.axes, (x - product.origin).T).T
        parts = _improved(z, weights, product.shares, product.means, product.sds)
        tried = Product(product.origin, product.axes, *parts)
        new = np.mean(tried.log_density(judges))
        if new < score:
            break
        product, score = tried, new
    return product


def independent_rotation(
    x: Float[np.ndarray, "draws dim"], root: Float[np.ndarray, "dim dim"], rng: np.random.Generator
) -> Float[np.ndarray, "dim dim"]:
    """The rotation after which whitened draws are most independent, by FastICA with tanh."""
    z = np.linalg.solve(root, (x - x.mean(axis=0)).T)
    dim, count = z.shape
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    for _ in range(_ROTATIONS):
        bent = np.tanh(rotation @ z)
        slope = 1.0 - np.mean(bent**2, axis=1)
        left, _, right = np.linalg.svd(bent @ z.T / count - slope[:, None] * rotation)
        before, rotation = rotation, left @ right
        if np.max(np.abs(np.abs(np.sum(before * rotation, axis=1)) - 1.0)) < _SETTLED:
            break
    return rotation.T


def _along(origin: np.ndarray, axes: np.ndarray, x: np.ndarray, held_out: np.ndarray) -> Product:
    """The product along given axes; along each, as many normals as held-out draws want."""
    z, others = (np.linalg.solve(axes, (part - origin).T).T for part in (x, held_out))
    dim, most = z.shape[1], _SIZES[-1]
    found = [np.zeros((dim, most)), np.zeros((dim, most)), np.ones((dim, most))]
    best = np.full(dim, -np.inf)
    for size in _SIZES:
        tried = _normals(z, size)
        score = _axis_logs(others, *tried).mean(axis=0)
        better = score > best + _WORTH
        best = np.where(better, score, best)
        for kept, new, empty in zip(found, tried, (0.0, 0.0, 1.0), strict=True):
            kept[better] = empty
            kept[better, :size] = new[better]
    return Product(origin, axes, *found)


def _normals(z: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares, means and sds along every axis, from quantiles on."""
    means = np.quantile(z, (np.arange(size) + 0.5) / size, axis=0).T
    gap = z.std(axis=0)[:, None] / size
    shares, sds = np.full(means.shape, 1.0 / size), np.repeat(gap, size, axis=1)
    return _improved(z, np.ones(len(z)), shares, means, sds)


def _improved(
    z: np.ndarray, weights: np.ndarray, shares: np.ndarray, means: np.ndarray, sds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expectation maximisation on weighted draws, every axis alone."""
    axes = zip(z.T, shares, means, sds, strict=True)
    found = [_improved_axis(one, weights, *normals) for one, *normals in axes]
    shares, means, sds = (np.stack(column) for column in zip(*found, strict=True))
    return shares, means, sds


def _improved_axis(
    z: Float[np.ndarray, " draws"],
    weights: Float[np.ndarray, " draws"],
    shares: Float[np.ndarray, " components"],
    means: Float[np.ndarray, " components"],
    sds: Float[np.ndarray, " components"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    least = _NARROWEST * np.sqrt(np.average(z**2, weights=weights)) / len(shares)
    powers, total, score = _powers(z), weights.sum(), -np.inf
    for _ in range(_ITERATIONS if len(shares) > 1 else 1):
        logs, parts = log_sum(_forms(shares, means, sds) @ powers)
        gained, score = weights @ logs / total - score, weights @ logs / total
        if gained < _CONVERGED:
            break
        counts, sums, squares = (parts * weights @ powers.T).T
        safe = np.maximum(counts, 1e-9)
        moved = sums / safe
        # What holds next to nothing stays where it is.
        held = counts > 1e-6 * total
        means = np.where(held, moved, means)
        sds = np.where(held, np.sqrt(np.maximum(squares / safe - moved**2, least**2)), sds)
        shares = np.where(held, counts, 0.0)
        shares = shares / shares.sum()
    return shares, means, sds


def _powers(z: Float[np.ndarray, " draws"]) -> Float[np.ndarray, "3 draws"]:
    return np.stack([np.ones_like(z), z, z**2])


def _forms(
    shares: np.ndarray, means: np.ndarray, sds: np.ndarray
) -> Float[np.ndarray, "components 3"]:
    """What `_powers` are multiplied by to give ln share_c N_c(z)."""
    with np.errstate(divide="ignore"):
        constants = np.log(shares) - np.log(sds) - 0.5 * np.log(2 * np.pi)
    precisions = sds**-2.0
    return np.stack(
        [constants - 0.5 * precisions * means**2, precisions * means, -0.5 * precisions], axis=1
    )


def _axis_logs(
    z: np.ndarray, shares: np.ndarray, means: np.ndarray, sds: np.ndarray
) -> Float[np.ndarray, "draws dim"]:
    axes = zip(z.T, shares, means, sds, strict=True)
    logs = [log_sum(_forms(*normals) @ _powers(one))[0] for one, *normals in axes]
    return np.stack(logs, axis=1)
