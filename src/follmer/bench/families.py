"""Families of random targets whose moments and evidence are known, to judge verdicts by."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from follmer.targets import Target

# Exact draws from which moments are read where there is no closed form: their own error is .002 sd.
_NUM_EXACT = 400_000
# Draws by which a regression's posterior is importance-sampled, and its t proposal's freedom.
_NUM_WEIGHED, _FREEDOM = 50_000, 6.0
# Points of one-dimensional quadratures.
_NUM_POINTS = 200_001


class Known(NamedTuple):
    """A target and the truth: moments of every scalar of a draw, and ln Z."""

    family: str
    target: Target
    mean: Float[np.ndarray, " scalars"]
    sd: Float[np.ndarray, " scalars"]
    log_evidence: float


Family = Callable[[np.random.Generator], Known]


def random_target(index: int, seed: int = 0, families: Sequence[str] = ()) -> Known:
    """Target number `index`: families take turns, everything else is random."""
    named = families or tuple(FAMILIES)
    return FAMILIES[named[index % len(named)]](np.random.default_rng([seed, index]))


def gaussian(rng: np.random.Generator) -> Known:
    """Any scale, condition numbers up to 10⁴ along random directions."""
    dim = _dimension(rng, 50)
    scale = 10.0 ** rng.uniform(-3, 3)
    sds = scale * 10.0 ** rng.uniform(-1, 1, dim)
    rotation = _rotation(rng, dim)
    mean = scale * rng.normal(size=dim) * 3.0
    precision = jnp.asarray((rotation / sds**2) @ rotation.T)
    centre = jnp.asarray(mean)
    log_z = float(np.sum(np.log(sds)) + 0.5 * dim * np.log(2 * np.pi))

    def log_density(x: Array) -> Array:
        return -0.5 * (x - centre) @ precision @ (x - centre)

    sd = np.sqrt(np.diag((rotation * sds**2) @ rotation.T))
    return Known("gaussian", _plain(log_density, dim), mean, sd, log_z)


def mixture(rng: np.random.Generator) -> Known:
    """2 to 50 Gaussians, 2 to 200 widths apart, of equal or unequal widths and masses."""
    dim = int(rng.integers(1, 6))
    count = int(rng.choice([2, 3, 5, 10, 25, 50]))
    apart = 10.0 ** rng.uniform(math.log10(2.0), math.log10(200.0))
    reach = 0.5 * apart * count ** (1.0 / dim)
    means = rng.uniform(-reach, reach, (count, dim)) + rng.normal(size=dim)
    sds = np.exp(rng.uniform(-0.7, 0.7, count)) if rng.uniform() < 0.5 else np.ones(count)
    shares = rng.dirichlet(np.full(count, 3.0)) if rng.uniform() < 0.5 else np.full(count, 1.0)
    return _mixture("mixture", means, sds, shares / shares.sum())


def spread_mixture(rng: np.random.Generator) -> Known:
    """2 to 50 Gaussians in boxes of ± 20 to ± 100, their widths within a factor of four."""
    dim = int(rng.integers(1, 6))
    count = int(rng.integers(2, 51))
    reach = rng.uniform(20.0, 100.0)
    means = rng.uniform(-reach, reach, (count, dim))
    sds = np.exp(rng.uniform(math.log(0.5), math.log(2.0), count))
    return _mixture("spread_mixture", means, sds, rng.dirichlet(np.full(count, 3.0)))


def two_far(rng: np.random.Generator) -> Known:
    """Two modes of unequal mass in up to 20 dimensions."""
    dim = _dimension(rng, 20)
    direction = rng.normal(size=dim)
    direction /= np.linalg.norm(direction)
    apart = 10.0 ** rng.uniform(math.log10(4.0), math.log10(100.0))
    share = rng.uniform(0.2, 0.8)
    means = np.stack([0.4 * apart * direction, -0.6 * apart * direction])
    return _mixture("two_far", means, np.ones(2), np.array([share, 1.0 - share]))


def student(rng: np.random.Generator) -> Known:
    """A multivariate t of 2.5 to 30 degrees of freedom."""
    dim, freedom = _dimension(rng, 20), float(np.exp(rng.uniform(np.log(2.5), np.log(30.0))))
    factor = np.linalg.cholesky(_covariance(rng, dim))
    mean = rng.normal(size=dim) * 2.0
    inverse, centre = jnp.asarray(np.linalg.inv(factor)), jnp.asarray(mean)
    sd = np.sqrt(np.diag(factor @ factor.T) * freedom / (freedom - 2.0))
    log_z = float(
        gammaln(0.5 * freedom)
        - gammaln(0.5 * (freedom + dim))
        + 0.5 * dim * np.log(freedom * np.pi)
        + np.sum(np.log(np.diag(factor)))
    )

    def log_density(x: Array) -> Array:
        z = inverse @ (x - centre)
        return -0.5 * (freedom + dim) * jnp.log1p(z @ z / freedom)

    return Known("student", _plain(log_density, dim), mean, sd, log_z)


def skewed(rng: np.random.Generator) -> Known:
    """Logarithms of gamma variables, turned by a random rotation."""
    dim = _dimension(rng, 20)
    shape = np.exp(rng.uniform(np.log(0.7), np.log(20.0), dim))
    rotation = _rotation(rng, dim)
    turn, power = jnp.asarray(rotation.T), jnp.asarray(shape)

    def log_density(x: Array) -> Array:
        z = turn @ x
        return jnp.sum(power * z - jnp.exp(z))

    draws = np.log(rng.gamma(shape, size=(_NUM_EXACT // 4, dim))) @ rotation.T
    return _by_draws("skewed", log_density, draws, float(jnp.sum(gammaln(power))))


def banana(rng: np.random.Generator) -> Known:
    """A normal bent along a parabola, the other coordinates independent."""
    dim = int(rng.integers(2, 11))
    bend, width = rng.uniform(0.1, 1.5), np.exp(rng.uniform(np.log(0.2), np.log(1.0)))

    def log_density(x: Array) -> Array:
        rest = jnp.sum(x[2:] ** 2)
        return -0.5 * (x[0] ** 2 + ((x[1] - bend * x[0] ** 2) / width) ** 2 + rest)

    draws = rng.normal(size=(_NUM_EXACT, dim))
    draws[:, 1] = width * draws[:, 1] + bend * draws[:, 0] ** 2
    log_z = 0.5 * dim * np.log(2 * np.pi) + np.log(width)
    return _by_draws("banana", log_density, draws, float(log_z))


def rosenbrock(rng: np.random.Generator) -> Known:
    """Coordinates that follow the square of the one before, in a chain of two or three."""
    dim, width = int(rng.integers(2, 4)), np.exp(rng.uniform(np.log(0.2), np.log(0.7)))

    def log_density(x: Array) -> Array:
        follow = jnp.sum((x[1:] - 0.5 * x[:-1] ** 2) ** 2) / width**2
        return -0.5 * ((x[0] - 1.0) ** 2 / 0.5 + follow)

    draws = rng.normal(size=(_NUM_EXACT, dim))
    draws[:, 0] = 1.0 + np.sqrt(0.5) * draws[:, 0]
    for i in range(1, dim):
        draws[:, i] = 0.5 * draws[:, i - 1] ** 2 + width * draws[:, i]
    log_z = 0.5 * dim * np.log(2 * np.pi) + 0.5 * np.log(0.5) + (dim - 1) * np.log(width)
    return _by_draws("rosenbrock", log_density, draws, float(log_z))


def funnel(rng: np.random.Generator) -> Known:
    """Neal's funnel of random depth."""
    dim, depth = int(rng.integers(2, 11)), rng.uniform(0.5, 2.0)

    def log_density(x: Array) -> Array:
        rest = -0.5 * jnp.sum(x[1:] ** 2) * jnp.exp(-x[0]) - 0.5 * (dim - 1) * x[0]
        return -0.5 * (x[0] / depth) ** 2 + rest

    mean = np.zeros(dim)
    sd = np.r_[depth, np.full(dim - 1, np.exp(0.25 * depth**2))]
    log_z = 0.5 * dim * np.log(2 * np.pi) + np.log(depth)
    return Known("funnel", _plain(log_density, dim), mean, sd, float(log_z))


def wells(rng: np.random.Generator) -> Known:
    """A product of tilted double wells."""
    dim = _dimension(rng, 50)
    separation, tilt = rng.uniform(1.0, 2.0), rng.uniform(-0.3, 0.3)

    def log_one(x: Any) -> Any:
        return -((x**2 - separation**2) ** 2) + tilt * x

    grid = np.linspace(-8.0, 8.0, _NUM_POINTS)
    log_z, mean, sd = _quadrature(log_one(grid), grid)
    target = _plain(lambda x: jnp.sum(log_one(x)), dim)
    return Known("wells", target, np.full(dim, mean), np.full(dim, sd), dim * log_z)


def shell(rng: np.random.Generator) -> Known:
    """Mass near a sphere."""
    dim, radius, width = int(rng.integers(2, 9)), rng.uniform(2.0, 6.0), rng.uniform(0.15, 0.6)

    def log_density(x: Array) -> Array:
        # Away from 0 the gradient of the length is finite.
        return -0.5 * ((jnp.sqrt(x @ x + 1e-12) - radius) / width) ** 2

    r = np.linspace(1e-6, radius + 12.0 * width, _NUM_POINTS)
    log_area = math.log(2.0) + 0.5 * dim * math.log(math.pi) - float(gammaln(0.5 * dim))
    logs = -0.5 * ((r - radius) / width) ** 2 + (dim - 1) * np.log(r)
    log_z, mean, sd = _quadrature(logs, r)
    spread = np.sqrt((mean**2 + sd**2) / dim)
    target = _plain(log_density, dim)
    return Known("shell", target, np.zeros(dim), np.full(dim, spread), log_z + log_area)


def positive(rng: np.random.Generator) -> Known:
    """Gamma variables of many scales."""
    dim = _dimension(rng, 20)
    shape, rate = np.exp(rng.uniform(-0.3, 2.5, dim)), 10.0 ** rng.uniform(-2, 2, dim)
    power, speed = jnp.asarray(shape), jnp.asarray(rate)
    target = Target(
        lambda x: jnp.sum((power - 1.0) * jnp.log(x) - speed * x),
        like=jnp.ones(dim),
        constraints=constraints.positive,
    )
    log_z = float(jnp.sum(gammaln(power))) - float(np.sum(shape * np.log(rate)))
    return Known("positive", target, shape / rate, np.sqrt(shape) / rate, log_z)


def interval(rng: np.random.Generator) -> Known:
    """Beta variables, some with mass at both ends."""
    dim = _dimension(rng, 20)
    a, b = np.exp(rng.uniform(-0.5, 2.5, (2, dim)))
    left, right = jnp.asarray(a), jnp.asarray(b)
    target = Target(
        lambda x: jnp.sum((left - 1.0) * jnp.log(x) + (right - 1.0) * jnp.log1p(-x)),
        like=jnp.full(dim, 0.5),
        constraints=constraints.unit_interval,
    )
    log_z = float(jnp.sum(gammaln(left) + gammaln(right) - gammaln(left + right)))
    sd = np.sqrt(a * b / (a + b + 1.0)) / (a + b)
    return Known("interval", target, a / (a + b), sd, log_z)


def simplex(rng: np.random.Generator) -> Known:
    """A Dirichlet distribution."""
    size = int(rng.integers(3, 16))
    a = np.exp(rng.uniform(-0.3, 2.5, size))
    power, total = jnp.asarray(a), a.sum()
    target = Target(
        lambda x: jnp.sum((power - 1.0) * jnp.log(x)),
        like=jnp.full(size, 1.0 / size),
        constraints=constraints.simplex,
    )
    log_z = float(jnp.sum(gammaln(power)) - gammaln(total))
    mean = a / total
    return Known("simplex", target, mean, np.sqrt(mean * (1.0 - mean) / (total + 1.0)), log_z)


def logistic(rng: np.random.Generator) -> Known:
    """A logistic regression; its truth by importance sampling from a t at the mode."""
    dim, count = int(rng.integers(2, 21)), int(rng.integers(30, 1000))
    x = rng.normal(size=(count, dim)) @ np.linalg.cholesky(_covariance(rng, dim)).T
    w = rng.normal(size=dim) * 1.5 / np.sqrt(dim)
    signs = np.where(rng.uniform(size=count) < 1.0 / (1.0 + np.exp(-x @ w)), 1.0, -1.0)
    target = Target(
        log_prior=lambda w: jnp.sum(stats.norm.logpdf(w, 0.0, 2.0)),
        log_likelihood=lambda w, batch: jax.nn.log_sigmoid(batch[1] * (batch[0] @ w)),
        data=(jnp.asarray(x), jnp.asarray(signs)),
        like=jnp.zeros(dim),
    )
    mean, sd, log_z = _logistic_truth(x * signs[:, None], 2.0, rng)
    return Known("logistic", target, mean, sd, log_z)


FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        *(gaussian, mixture, two_far, student, skewed, banana, rosenbrock, funnel),
        *(wells, shell, positive, interval, simplex, logistic, spread_mixture),
    )
}


def _plain(log_density: Callable[[Array], Array], dim: int) -> Target:
    return Target(log_density, like=jnp.zeros(dim))


def _by_draws(
    family: str, log_density: Callable[[Array], Array], draws: np.ndarray, log_z: float
) -> Known:
    target = _plain(log_density, draws.shape[1])
    return Known(family, target, draws.mean(axis=0), draws.std(axis=0), log_z)


def _mixture(family: str, means: np.ndarray, sds: np.ndarray, shares: np.ndarray) -> Known:
    """Round Gaussians; the density is normalised."""
    dim = means.shape[1]
    centres, widths = jnp.asarray(means), jnp.asarray(sds)
    logs = jnp.asarray(np.log(shares) - dim * np.log(sds) - 0.5 * dim * np.log(2 * np.pi))

    def log_density(x: Array) -> Array:
        return logsumexp(logs - 0.5 * jnp.sum((x - centres) ** 2, axis=1) / widths**2)

    mean = shares @ means
    variance = shares @ ((means - mean) ** 2 + sds[:, None] ** 2)
    return Known(family, _plain(log_density, dim), mean, np.sqrt(variance), 0.0)


def _quadrature(logs: np.ndarray, grid: np.ndarray) -> tuple[float, float, float]:
    """ln of the integral of exp, mean and standard deviation, on an even grid."""
    weights = np.exp(logs - logs.max())
    log_z = float(logs.max() + np.log(weights.sum() * (grid[1] - grid[0])))
    weights /= weights.sum()
    mean = float(weights @ grid)
    return log_z, mean, float(np.sqrt(weights @ (grid - mean) ** 2))


def _logistic_truth(
    rows: np.ndarray, prior_sd: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    dim = rows.shape[1]
    mode = np.zeros(dim)
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(rows @ mode))
        hessian = (rows.T * (p * (1.0 - p))) @ rows + np.eye(dim) / prior_sd**2
        mode = mode + np.linalg.solve(hessian, rows.T @ p - mode / prior_sd**2)
    factor = np.linalg.cholesky(np.linalg.inv(hessian))
    z = rng.normal(size=(_NUM_WEIGHED, dim))
    z *= np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, size=(_NUM_WEIGHED, 1)))
    draws = mode + z @ factor.T
    log_t = (
        float(gammaln(0.5 * (_FREEDOM + dim)) - gammaln(0.5 * _FREEDOM))
        - 0.5 * dim * np.log(_FREEDOM * np.pi)
        - np.sum(np.log(np.diag(factor)))
        - 0.5 * (_FREEDOM + dim) * np.log1p(np.sum(z**2, axis=1) / _FREEDOM)
    )
    logs = np.zeros(_NUM_WEIGHED)
    for block in np.array_split(np.arange(_NUM_WEIGHED), 50):
        logs[block] = -np.logaddexp(0.0, -draws[block] @ rows.T).sum(axis=1)
    logs += np.sum(-0.5 * (draws / prior_sd) ** 2 - np.log(prior_sd * np.sqrt(2 * np.pi)), axis=1)
    logs -= log_t
    weights = np.exp(logs - logs.max())
    log_z = float(logs.max() + np.log(weights.mean()))
    weights /= weights.sum()
    mean = weights @ draws
    return mean, np.sqrt(weights @ (draws - mean) ** 2), log_z


def _dimension(rng: np.random.Generator, most: int) -> int:
    """As many small dimensions as large ones."""
    return round(float(np.exp(rng.uniform(0.0, np.log(most)))))


def _rotation(rng: np.random.Generator, dim: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


def _covariance(rng: np.random.Generator, dim: int) -> np.ndarray:
    """Standard deviations from .3 to 3 along random directions."""
    rotation = _rotation(rng, dim)
    return (rotation * 10.0 ** rng.uniform(-1, 1, dim)) @ rotation.T
