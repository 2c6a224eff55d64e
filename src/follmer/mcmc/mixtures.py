"""Gaussian mixtures fitted to draws, on the host: EM, components chosen by held-out draws."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Numbers of components that are tried in turn.
_COMPONENTS = (1, 2, 4, 8, 16, 32)
# Nats per held-out draw that more components must gain to be worth their cost.
_WORTH = 0.005
_ITERATIONS, _SETTLED = 60, 1e-4
# Coordinates up to which all components are evaluated in one product.
_FEW_DIMENSIONS = 16
# Draws evaluated at once: those of all components stay in the cache.
_AT_ONCE = 2048
# A gradient of so many inverse standard deviations is a singularity's.
_STEEPEST = 1e4
# Widths of components, relative to their own, that importance sampling draws from.
_WIDTHS = (1.0, 2.0, 6.0)
_Shares = tuple[float, ...]
# Its rounds: draws, the widths' shares in them, steps of EM, and the widths' shares that EM begins
# with. Into the tails, where a good mixture is told; near by, where a poor one is mended; and many
# draws at last, for the variances.
_ROUNDS: tuple[tuple[int, _Shares, int, _Shares], ...] = (
    (8192, (0.5, 0.3, 0.2), 10, (0.9, 0.07, 0.03)),
    *2 * ((8192, (0.5, 0.5), 10, (0.9, 0.1)),),
    (8192, (0.5, 0.3, 0.2), 10, (0.9, 0.07, 0.03)),
    *2 * ((32768, (0.5, 0.3, 0.2), 4, (1.0,)),),
)
# The share of all draws' covariance that every component has, however narrow.
_FLOOR = 1e-9
# Draws of a chain per independent one.
_CORRELATED = 8.0
# Nothing is left to improve where this share of draws is effective, and variances differ by no more
# than this share.
_EVEN, _ALIKE = 0.99, 0.02
# Nats per held-out draw that a round may lose: chance, where it gains in the tails.
_LOST = 0.005
# A component of less share is left out.
_NEXT_TO_NONE = 1e-5
# Nats per draw by which two Gaussians are told apart.
_NOISE = 0.02
# Draws per component and coordinate: fewer cannot tell a covariance.
_DRAWS_EACH = 4
# Widths, relative to a component's own, that heavy tails are made of.
_SCALES = (1.0, 1.5, 2.5, 5.0, 12.0)


class Mixture(NamedTuple):
    """Σ_c share_c N(mean_c, covariance_c)."""

    shares: Float[np.ndarray, " components"]
    means: Float[np.ndarray, "components dim"]
    covariances: Float[np.ndarray, "components dim dim"]

    def log_densities(self, x: Float[np.ndarray, "draws dim"]) -> np.ndarray:
        """ln share_c N_c(x), for every component and draw."""
        constants, inverses = self._parts()
        pairs = zip(self.means, inverses, strict=True)
        lengths = [np.sum(((x - mean) @ inverse.T) ** 2, axis=1) for mean, inverse in pairs]
        return constants[:, None] - 0.5 * np.stack(lengths)

    def forms(self) -> Float[np.ndarray, "components products"]:
        """What `products` of a draw are multiplied by to give its `log_densities`.

        A quadratic form is linear in the products of coordinates: in few dimensions one matrix
        product evaluates all components.
        """
        constants, inverses = self._parts()
        precisions = inverses.transpose(0, 2, 1) @ inverses
        slopes = np.einsum("cij,cj->ci", precisions, self.means)
        constants -= 0.5 * np.sum(slopes * self.means, axis=1)
        squares = -0.5 * precisions.reshape(len(precisions), -1)
        return np.concatenate([constants[:, None], slopes, squares], axis=1)

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        """ln share_c N_c(mean_c), and the inverse of each covariance's root."""
        inverses = np.linalg.inv(safe_cholesky(self.covariances))
        log_dets = np.sum(np.log(np.diagonal(inverses, axis1=1, axis2=2)), axis=1)
        log_shares = np.log(self.shares) - 0.5 * self.means.shape[1] * np.log(2 * np.pi)
        return log_shares + log_dets, inverses

    def log_density(self, x: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, " draws"]:
        if x.shape[1] > _FEW_DIMENSIONS:
            return log_sum(self.log_densities(x))[0]
        parts = [logs for logs, _ in _log_sums(self.forms(), map(products, _blocks(x)))]
        return np.concatenate([np.zeros(0), *parts])

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, "count dim"]:
        chosen = rng.choice(len(self.shares), count, p=self.shares / self.shares.sum())
        factors = safe_cholesky(self.covariances)
        noise = rng.standard_normal((count, self.means.shape[1]))
        # Component by component: a factor for each draw would take draws × dim² numbers.
        for place in np.unique(chosen):
            own = chosen == place
            noise[own] = self.means[place] + noise[own] @ factors[place].T
        return noise


def safe_cholesky(
    covariance: Float[np.ndarray, "*stack dim dim"],
) -> Float[np.ndarray, "*stack dim dim"]:
    """The lower root of each covariance, however different its scales, nearly singular or not."""
    scale = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)) + np.finfo(float).tiny
    correlation = covariance / scale[..., :, None] / scale[..., None, :]
    try:
        lower = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        if covariance.ndim > 2:
            return np.stack([safe_cholesky(one) for one in covariance])
        lower = _nearly_singular_root(correlation)
    return scale[..., :, None] * lower


def _nearly_singular_root(correlation: Float[np.ndarray, "dim dim"]) -> np.ndarray:
    eye = np.eye(len(correlation))
    for jitter in (1e-12, 1e-9, 1e-6, 1e-3):
        try:
            return np.linalg.cholesky(correlation + jitter * eye)
        except np.linalg.LinAlgError:
            continue
    return eye


def joined(mixtures: list[Mixture], shares: Float[np.ndarray, " mixtures"]) -> Mixture:
    """One mixture of several, each with its share."""
    pairs = zip(mixtures, shares, strict=True)
    parts = [one._replace(shares=share * one.shares) for one, share in pairs]
    return Mixture(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def pruned(mixture: Mixture, most: int) -> Mixture:
    """The mixture of its largest components, without those of next to no share."""
    order = np.argsort(-mixture.shares)[:most]
    order = order[mixture.shares[order] > _NEXT_TO_NONE]
    shares = mixture.shares[order]
    return Mixture(shares / shares.sum(), mixture.means[order], mixture.covariances[order])


def fit_mixture(
    x: Float[np.ndarray, "draws dim"],
    gradients: Float[np.ndarray, "draws dim"],
    held_out: Float[np.ndarray, "others dim"],
    rng: np.random.Generator,
    max_components: int = _COMPONENTS[-1],
    around: Mixture | None = None,
) -> Mixture:
    """The mixture that held-out draws find likeliest: few components, more, or heavy tails.

    `around` is the Gaussian that the curvature at a mode makes: in many dimensions draws are too
    few to tell a covariance.
    """
    singles = [] if around is None else [around, _moved(around, x, gradients)]
    if len(x) > _DRAWS_EACH * x.shape[1] or not singles:
        singles = [matched_gaussian(x, gradients), single_gaussian(x), *singles]
    scores = [np.mean(one.log_density(held_out)) for one in singles]
    # The first have the least noise where they are alike, as they are for a Gaussian.
    best = next(
        one for one, score in zip(singles, scores, strict=True) if score > max(scores) - _NOISE
    )
    best_score = max(scores)
    for count in _COMPONENTS[1:]:
        if count > max_components or len(x) < _DRAWS_EACH * count * x.shape[1]:
            break
        tried = _em(x, count, rng)
        score = np.mean(tried.log_density(held_out))
        if score < best_score + _WORTH:
            break
        best, best_score = tried, score
    tailed = _with_tails(best, x)
    return tailed if np.mean(tailed.log_density(held_out)) > best_score + _WORTH else best


def matched_gaussian(
    x: Float[np.ndarray, "draws dim"], gradients: Float[np.ndarray, "draws dim"]
) -> Mixture:
    """The Gaussian whose scores are nearest to the target's at the draws.

    Its covariance is the geometric mean of the draws' and of the inverse of the gradients' (the
    minimiser of the affine-invariant Fisher divergence; Cai et al. 2024, arXiv:2402.14758). Where
    the target is Gaussian it is exact, whatever the noise of the draws.
    """
    jitter = 1e-9 * np.eye(x.shape[1])
    scale = np.std(x, axis=0) + 1e-300
    # In units of the draws' spread a gradient is of order one.
    sound = np.max(np.abs(gradients * scale), axis=1) < _STEEPEST
    if np.mean(sound) < 0.5:
        return single_gaussian(x)
    x, gradients = x[sound], gradients[sound]
    spread = np.atleast_2d(np.cov((x / scale).T)) + jitter
    slopes = np.atleast_2d(np.cov((gradients * scale).T)) + jitter
    # C # S⁻¹ = C^½ (C^½ S C^½)^−½ C^½.
    root = _power(spread, 0.5)
    covariance = root @ _power(root @ slopes @ root, -0.5) @ root
    covariance = 0.5 * (covariance + covariance.T) * np.outer(scale, scale)
    mean = x.mean(axis=0) + covariance @ gradients.mean(axis=0)
    return Mixture(np.ones(1), mean[None], covariance[None])


def _moved(around: Mixture, x: np.ndarray, gradients: np.ndarray) -> Mixture:
    """The Gaussian of a mode at the mean of draws, by a Newton step from there."""
    step = around.covariances[0] @ gradients.mean(axis=0)
    mean = x.mean(axis=0) + np.where(np.isfinite(step).all(), step, 0.0)
    return around._replace(means=mean[None])


def _power(matrix: np.ndarray, power: float) -> np.ndarray:
    values, axes = np.linalg.eigh(matrix)
    return (axes * np.maximum(values, 1e-300) ** power) @ axes.T


def single_gaussian(x: Float[np.ndarray, "draws dim"]) -> Mixture:
    """The Gaussian of the draws' own moments."""
    covariance = np.atleast_2d(np.cov(x.T)) + 1e-12 * np.eye(x.shape[1])
    return Mixture(np.ones(1), x.mean(axis=0)[None], covariance[None])


def _em(x: Float[np.ndarray, "draws dim"], count: int, rng: np.random.Generator) -> Mixture:
    """Expectation maximisation from scattered centres; covariances shrink to the pooled one."""
    dim = x.shape[1]
    pooled = np.atleast_2d(np.cov(x.T)) + 1e-12 * np.eye(dim)
    mixture = Mixture(
        np.full(count, 1.0 / count),
        _scattered(x, count, np.linalg.inv(pooled), rng),
        np.repeat(pooled[None] / count ** (2.0 / dim), count, axis=0),
    )
    return improved(mixture, x, np.ones(len(x)), _ITERATIONS)


def improved(
    mixture: Mixture,
    x: Float[np.ndarray, "draws dim"],
    weights: Float[np.ndarray, " draws"],
    num_iterations: int,
    *,
    anchored: bool = False,
) -> Mixture:
    """Expectation maximisation on weighted draws, from a mixture on.

    A component of few draws takes the shape of all components together or, where the mixture is
    `anchored`, keeps its own.
    """
    score, total = -np.inf, weights.sum()
    pooled = np.cov(x.T, aweights=weights).reshape(2 * (x.shape[1],)) + 1e-12 * np.eye(x.shape[1])
    anchors = mixture.covariances if anchored else None
    by_forms = x.shape[1] <= _FEW_DIMENSIONS
    blocks = [*map(products, _blocks(x))] if by_forms else []
    for _ in range(num_iterations):
        if by_forms:
            found = _expected_by_forms(mixture, blocks, weights)
        else:
            found = _expected(mixture, x, weights)
        gained, score = found.log_density / total - score, found.log_density / total
        if gained < _SETTLED:
            break
        kept = found.counts > _NEXT_TO_NONE * total
        anchors = None if anchors is None else anchors[kept]
        mixture = _maximised(
            _Expected(found[0], *(part[kept] for part in found[1:])), pooled, anchors
        )
    return mixture


class _Expected(NamedTuple):
    """What a step of EM reads from weighted draws."""

    log_density: float  # the sum over draws
    counts: Float[np.ndarray, " components"]  # Σ r, r a draw's weight times its responsibility
    squares: Float[np.ndarray, " components"]  # Σ r²
    sums: Float[np.ndarray, "components dim"]  # Σ r x
    scatters: Float[np.ndarray, "components dim dim"]  # Σ r (x − mean)(x − mean)ᵀ


def _expected(mixture: Mixture, x: np.ndarray, weights: np.ndarray) -> _Expected:
    logs, shares = log_sum(mixture.log_densities(x))
    shares *= weights
    counts, sums = shares.sum(axis=1), shares @ x
    means = sums / np.maximum(counts, np.finfo(float).tiny)[:, None]
    pairs = zip(shares, means, strict=True)
    scatters = [(each[:, None] * (x - mean)).T @ (x - mean) for each, mean in pairs]
    return _Expected(
        float(weights @ logs), counts, np.sum(shares**2, axis=1), sums, np.stack(scatters)
    )


def _expected_by_forms(
    mixture: Mixture, blocks: list[np.ndarray], weights: np.ndarray
) -> _Expected:
    """In blocks that stay in the cache, each the products of some draws."""
    dim, forms = mixture.means.shape[1], mixture.forms()
    log_density, moments, squares = 0.0, np.zeros_like(forms), np.zeros(len(forms))
    found = _log_sums(forms, blocks)
    for block, own, (logs, shares) in zip(blocks, _blocks(weights), found, strict=True):
        shares *= own
        log_density += float(own @ logs)
        moments += shares @ block.T
        squares += np.einsum("cn,cn->c", shares, shares)
    counts, sums = moments[:, 0], moments[:, 1 : 1 + dim]
    inverse = 1.0 / np.maximum(counts, np.finfo(float).tiny)[:, None, None]
    scatters = (
        moments[:, 1 + dim :].reshape(-1, dim, dim) - sums[:, :, None] * sums[:, None] * inverse
    )
    return _Expected(log_density, counts, squares, sums, scatters)


def _maximised(found: _Expected, pooled: np.ndarray, anchors: np.ndarray | None) -> Mixture:
    counts, dim = found.counts, found.sums.shape[1]
    typical = found.scatters.sum(axis=0) / counts.sum() if anchors is None else anchors
    # Draws that a component is told by, of whatever weight.
    support = counts**2 / found.squares / _CORRELATED
    support = np.maximum(support, counts)[:, None, None]
    trust = support / (support + dim + 2.0)
    own = found.scatters / counts[:, None, None]
    # A little of all draws' shape, against components that collapse.
    covariances = trust * own + (1.0 - trust) * typical + _FLOOR * pooled
    return Mixture(counts / counts.sum(), found.sums / counts[:, None], covariances)


def products(x: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, "products draws"]:
    """1, the coordinates, and all products of two, of every draw."""
    rows = x.T
    both = (rows[:, None] * rows).reshape(-1, len(x))
    return np.concatenate([np.ones((1, len(x))), rows, both])


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time."""
    return (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))


def _log_sums(
    forms: Float[np.ndarray, "components products"], blocks: Iterable[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`log_sum` over components of each block of draws' products; the shares are overwritten."""
    room = np.empty((len(forms), _AT_ONCE))
    for block in blocks:
        yield log_sum(np.matmul(forms, block, out=room[:, : block.shape[1]]))


def log_sum(logs: Float[np.ndarray, "parts draws"]) -> tuple[np.ndarray, np.ndarray]:
    """ln Σ exp of every column, and the parts' shares in it; `logs` is overwritten."""
    top = logs.max(axis=0)
    logs -= top
    parts = np.exp(logs, out=logs)
    total = parts.sum(axis=0)
    parts /= total
    return top + np.log(total), parts


def reweighed(
    mixture: Mixture,
    log_density: Callable[[np.ndarray], np.ndarray],
    chains: Float[np.ndarray, "some dim"],
    judges: Float[np.ndarray, "others dim"],
    rng: np.random.Generator,
    most: int,
    most_draws: int = _ROUNDS[-1][0],
) -> Mixture:
    """The mixture after rounds of drawing from it, weighing by the target, and fitting again.

    Independent draws with weights know more than chains do, where the mixture reaches; draws of
    wider components tell how much mass is in the tails. A round is kept where other draws of the
    chains, the `judges`, find it likelier.
    """
    least = np.mean(mixture.log_density(judges)) - _LOST
    for count, drawn, steps, begun in _ROUNDS:
        proposal = _at_widths(mixture, drawn)
        x = proposal.draw(min(count, most_draws), rng)
        values, log_all = finite_or_none(log_density(x)), proposal.log_density(x)
        logs, log_own = values - log_all, mixture.log_density(x)
        if not np.isfinite(logs.max()):
            break
        if _is_matched(x, logs, log_own - log_all):
            if len(drawn) == len(_WIDTHS):
                break
            # Near by nothing is left to mend.
            continue
        weights = np.exp(logs - logs.max())
        weights = np.minimum(weights, weights.mean() * np.sqrt(len(weights)))
        weights *= weights.sum() / np.sum(weights**2)
        both = np.concatenate([x, chains])
        weights = np.concatenate([weights, np.full(len(chains), 1.0 / _CORRELATED)])
        begin = _at_widths(mixture, begun)
        tried = pruned(improved(begin, both, weights, steps, anchored=True), most)
        score = np.mean(tried.log_density(judges))
        if score >= least:
            mixture, least = tried, max(least, score - _LOST)
    return mixture


def _at_widths(mixture: Mixture, shares: _Shares) -> Mixture:
    """A mixture of the mixture at several widths."""
    widths = _WIDTHS[: len(shares)]
    return joined([widened(mixture, width) for width in widths], np.array(shares))


def widened(mixture: Mixture, scale: float) -> Mixture:
    """Every component so many times as wide; in many dimensions less, where width is volume."""
    factor = 1.0 + (scale**2 - 1.0) / np.sqrt(mixture.means.shape[1])
    return mixture._replace(covariances=factor * mixture.covariances)


def finite_or_none(values: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """Log densities, with none where they are not finite."""
    return np.where(np.isfinite(values), values, -np.inf)


def _is_matched(
    x: Float[np.ndarray, "draws dim"],
    logs: Float[np.ndarray, " draws"],
    log_ratios: Float[np.ndarray, " draws"],
) -> bool:
    """Whether a mixture has even weights and the target's variances, told by another's draws.

    `logs` are the target's log weights for the draws, `log_ratios` the mixture's.
    """
    of_target, of_mixture = np.exp(logs - logs.max()), np.exp(log_ratios)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(of_mixture > 0, of_target / of_mixture, 0.0)
    even = np.mean(of_target) ** 2 / np.mean(of_mixture * own**2) / np.mean(of_mixture)
    spreads = [np.average((x - np.average(x, 0, w)) ** 2, 0, w) for w in (of_target, of_mixture)]
    return bool(even > _EVEN and np.max(np.abs(spreads[0] / spreads[1] - 1.0)) < _ALIKE)


def _scattered(
    x: np.ndarray, count: int, precision: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Centres far from each other (k-means++; Arthur & Vassilvitskii 2007)."""
    centres = [x[rng.integers(len(x))]]
    distance = np.full(len(x), np.inf)
    for _ in range(count - 1):
        offset = x - centres[-1]
        distance = np.minimum(distance, np.einsum("ni,ij,nj->n", offset, precision, offset))
        centres.append(x[rng.choice(len(x), p=distance / distance.sum())])
    return np.stack(centres)


def _with_tails(mixture: Mixture, x: np.ndarray) -> Mixture:
    """Every component at several widths, in shares that all have in common."""
    shares = np.full(len(_SCALES), 0.02)
    shares[0] = 1.0 - 0.02 * (len(_SCALES) - 1)
    logs = np.stack(
        [
            mixture._replace(covariances=scale**2 * mixture.covariances).log_density(x)
            for scale in _SCALES
        ],
        axis=1,
    )
    for _ in range(_ITERATIONS):
        weighed = np.log(shares + 1e-12) + logs
        responsibilities = np.exp(weighed - np.logaddexp.reduce(weighed, axis=1)[:, None])
        shares = responsibilities.mean(axis=0)
    kept = [(scale, share) for scale, share in zip(_SCALES, shares, strict=True) if share > 1e-4]
    widened = [mixture._replace(covariances=scale**2 * mixture.covariances) for scale, _ in kept]
    total = sum(share for _, share in kept)
    return joined(widened, np.array([share / total for _, share in kept]))
