"""Draws of a target by many short chains, with their own diagnosis.

Chains start around every mode that climbs from many scales have found, and wherever else importance
sampling finds mass. The population serves for coordinates, for training, for judging, and as an
answer by itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from follmer.mcmc.chains import GROUP_SIZE, KEPT_CALLS, NUM_GROUPS, run_chains
from follmer.mcmc.mixtures import (
    Mixture,
    finite_or_none,
    fit_mixture,
    joined,
    reweighed,
    safe_cholesky,
    single_gaussian,
)
from follmer.mcmc.modes import Modes
from follmer.mcmc.products import Product, fit_product, reweighed_product
from follmer.targets import Density
from follmer.tools.keys import generator, named_key
from follmer.tools.progress import NEVER

# Where there are many sites: calls that are kept at least, and components of all mixtures.
_FEWEST_KEPT, _MOST_COMPONENTS = 2, 64
# Starts around a mode are this many times as wide as it looks.
_OVERDISPERSED = 1.5
# Scales at which mass is looked for away from the modes, and points tried at each and at each mode.
_WIDE_SCALES, _NUM_TRIED = (1.0, 3.0, 10.0), 256
# The share of the mass that must lie away from the modes to be worth chains of its own.
_AWAY = 0.3
# A site of less mass is not judged, and of still less is left out.
_LEAST, _NOTHING = 1e-3, 1e-6
# Independent draws that a chain is worth at least once the chains agree.
_WORTH_OF_CHAIN = 4
# Draws by which the masses of sites are told.
_NUM_WEIGHED = 1024
# Operations per gradient up to which the mixture is improved by importance sampling, and draws of
# the chains that take part.
_CHEAP, _NUM_IMPROVING = 1e6, 4096
# Operations that a round of importance sampling may take (a fraction of a second), and its draws at
# least.
_ROUND_BUDGET, _FEWEST_DRAWS = 1e9, 2048
# Nats by which log weights vary up to which no other density is looked for: than a mixture (ESS
# 96 %), and than one Gaussian, which is cheap and smooth.
_EVEN, _EVEN_OF_ONE = 0.2, 1.0

Proposal = Mixture | Product


class Site(NamedTuple):
    """Draws around one mode, or of the mass away from them, and how far their chains agree."""

    draws: Float[np.ndarray, "draws chains dim"]
    rhat: float  # nested, the worst coordinate's
    mixture: Mixture  # fitted to the draws of half of the chains

    @property
    def flat(self) -> Float[np.ndarray, "all dim"]:
        """All draws."""
        return _flat(self.draws)

    @property
    def fitted(self) -> Float[np.ndarray, "some dim"]:
        """The draws of the chains that the mixture is fitted to: one half."""
        return _flat(self.draws[:, ::2])

    @property
    def choosing(self) -> Float[np.ndarray, "some dim"]:
        """The draws of the chains by which one of several mixtures is chosen: a quarter."""
        return _flat(self.draws[:, 1::4])

    @property
    def held_out(self) -> Float[np.ndarray, "some dim"]:
        """The draws of the chains that the mixture knows nothing of: a quarter."""
        return _flat(self.draws[:, 3::4])


class Population(NamedTuple):
    """Draws of a target in its own flat coordinates: those of each site, and the sites' masses."""

    sites: tuple[Site, ...]
    masses: Float[np.ndarray, " sites"]
    log_evidence: float  # by importance sampling from the sites' mixtures, or by tempering
    proposal: Proposal  # the density that was fitted to all sites
    hold_mass: Bool[np.ndarray, " modes"] | None = None  # which modes do, where it was looked at

    @property
    def rhat(self) -> float:
        """That of the worst site with any mass."""
        return max(
            site.rhat for site, mass in zip(self.sites, self.masses, strict=True) if mass > _LEAST
        )

    @property
    def num_chains(self) -> int:
        """Chains of all sites."""
        return sum(site.draws.shape[1] for site in self.sites)

    @property
    def effective(self) -> float:
        """Independent draws that the population is worth, about: each chain counts for a few."""
        return float(NUM_GROUPS * GROUP_SIZE * _WORTH_OF_CHAIN)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything, as named arrays for a file."""
        found = {"masses": self.masses, "log_evidence": np.asarray(self.log_evidence)}
        found |= {f"proposal_{name}": part for name, part in self.proposal._asdict().items()}
        if self.hold_mass is not None:
            found["hold_mass"] = self.hold_mass
        for i, site in enumerate(self.sites):
            parts = {"draws": site.draws, "rhat": np.asarray(site.rhat), **site.mixture._asdict()}
            found |= {f"site{i}_{name}": part for name, part in parts.items()}
        return {f"population_{name}": part for name, part in found.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Population":
        """What `arrays` took apart."""
        masses = arrays["population_masses"]
        sites = []
        for i in range(len(masses)):
            prefix = f"population_site{i}_"
            mixture = Mixture(*(arrays[prefix + name] for name in Mixture._fields))
            rhat = float(arrays[prefix + "rhat"])
            sites.append(Site(arrays[prefix + "draws"], rhat, mixture))
        kind = Product if "population_proposal_axes" in arrays else Mixture
        proposal = kind(*(arrays[f"population_proposal_{name}"] for name in kind._fields))
        log_evidence = float(arrays["population_log_evidence"])
        hold_mass = arrays.get("population_hold_mass")
        return cls(tuple(sites), masses, log_evidence, proposal, hold_mass)

    def draws(self, count: int, rng: np.random.Generator, *, held_out: bool = False) -> np.ndarray:
        """Draws of all sites in proportion to their masses; of the held-out chains alone."""
        counts = rng.multinomial(count, self.masses)
        parts = [
            _some(site.held_out if held_out else site.flat, number, rng)
            for site, number in zip(self.sites, counts, strict=True)
        ]
        return np.concatenate(parts)


def populate(
    density: Density,
    modes: Modes,
    key: PRNGKeyArray,
    *,
    agree: float,
    max_calls: int,
    stop: Callable[[], bool] = NEVER,
) -> Population | None:
    """Chains around each mode and where else there is mass, until they agree or for so long.

    None where no chain could move.
    """
    resolved = [_is_resolved(one, density.dtype) for one in modes.gaussians]
    gaussians = [one for one, is_one in zip(modes.gaussians, resolved, strict=True) if is_one]
    # The mode of each start; −1 away from them.
    places = [*np.flatnonzero(resolved).tolist(), -1]
    rng = generator(key, "starts")
    starts = _importance_starts(density, gaussians, rng)
    # Many sites share the effort.
    count = sum(points is not None for points, _ in starts) or 1
    kept_calls = max(min(KEPT_CALLS, max_calls // 3) // count, _FEWEST_KEPT)
    components = max(_MOST_COMPONENTS // count, 1)
    sites, of_mode = [], []
    for i, (points, factor) in enumerate(starts):
        if points is None:
            continue
        site_key = named_key(key, f"site {i}")
        draws, gradients, rhat = run_chains(
            density, points, factor, site_key, agree, max_calls, kept_calls, stop
        )
        if not (draws.std(axis=(0, 1)) > 0).all():
            # Chains that never moved: a spike that the density's units do not resolve.
            continue
        around = gaussians[i] if i < len(gaussians) else None
        sites.append(fitted_site(draws, gradients, rhat, rng, components, around))
        of_mode.append(places[i])
    if not sites:
        return None
    masses, log_evidence = _masses(density, sites, rng)
    hold_mass = np.isin(np.arange(len(modes.x)), np.asarray(of_mode)[masses > _LEAST])
    kept = masses > _NOTHING
    sites = [site for site, keep in zip(sites, kept, strict=True) if keep]
    masses = masses[kept] / masses[kept].sum()
    proposal = fitted_proposal(density, sites, masses, rng)
    return Population(tuple(sites), masses, log_evidence, proposal, hold_mass)


def fitted_proposal(
    density: Density,
    sites: list[Site],
    masses: Float[np.ndarray, " sites"],
    rng: np.random.Generator,
) -> Proposal:
    """The mixture of all sites or a product: whichever fits draws that neither has seen."""
    counts = rng.multinomial(_NUM_IMPROVING, masses)
    pairs = [*zip(sites, counts, strict=True)]
    chains = np.concatenate([_some(site.fitted, count, rng) for site, count in pairs])
    judges = np.concatenate([_some(site.choosing, count, rng) for site, count in pairs])
    mixture = joined([site.mixture for site in sites], masses)
    cheap = density.target.gradient_cost <= _CHEAP
    draws = int(max(_ROUND_BUDGET / max(density.target.gradient_cost, 1.0), _FEWEST_DRAWS))
    if cheap:
        most = _MOST_COMPONENTS
        mixture = reweighed(mixture, density.values, chains, judges, rng, most, draws)
    is_one = len(mixture.shares) == 1
    if density.dim == 1 or (is_one and not cheap):
        return mixture
    even = _EVEN_OF_ONE if is_one else _EVEN
    if cheap and np.std(density.values(judges) - mixture.log_density(judges)) < even:
        return mixture
    product = fit_product(chains, judges, rng)
    if cheap:
        product = reweighed_product(product, density.values, judges, rng, draws)
    scores = [np.mean(one.log_density(judges)) for one in (mixture, product)]
    return mixture if scores[0] >= scores[1] else product


def fitted_site(
    draws: Float[np.ndarray, "draws chains dim"],
    gradients: Float[np.ndarray, "draws chains dim"],
    rhat: float,
    rng: np.random.Generator,
    max_components: int = _MOST_COMPONENTS,
    around: Mixture | None = None,
) -> Site:
    """A site with the mixture of its chains: half fit it, a quarter choose, a quarter judge."""
    x, slopes, others = _flat(draws[:, ::2]), _flat(gradients[:, ::2]), _flat(draws[:, 1::4])
    return Site(draws, rhat, fit_mixture(x, slopes, others, rng, max_components, around))


def population_from(
    density: Density, points: Float[np.ndarray, "points dim"], key: PRNGKeyArray, *, max_calls: int
) -> Population:
    """Chains from given points, one each, in coordinates where the target is near N(0, I)."""
    starts = points[: NUM_GROUPS * GROUP_SIZE]
    draws, _, rhat = run_chains(
        density, starts, np.eye(points.shape[1]), key, np.inf, max_calls, max_calls
    )
    mixture = single_gaussian(_flat(draws))
    return Population((Site(draws, rhat, mixture),), np.ones(1), float("nan"), mixture)


def _importance_starts(
    density: Density, gaussians: list[Mixture], rng: np.random.Generator
) -> list[tuple[np.ndarray | None, np.ndarray]]:
    """For each mode, and what is away from them: starts of groups, and a covariance's root.

    Points are drawn around the modes and at several scales around 0, and weighed by the target over
    the mixture of all that they were drawn from. No starts where a place has no mass to speak of.
    """
    dim = density.dim
    zero, eye = np.zeros((1, dim)), np.eye(dim)[None]
    around = [
        one._replace(covariances=_OVERDISPERSED**2 * one.covariances) for one in gaussians
    ] + [Mixture(np.ones(1), zero, scale**2 * eye) for scale in _WIDE_SCALES]
    mixture = joined(around, np.full(len(around), 1.0 / len(around)))
    points = np.concatenate([one.draw(_NUM_TRIED, rng) for one in around])
    # The mode itself is among the points that are tried.
    for i, one in enumerate(gaussians):
        points[i * _NUM_TRIED] = one.means[0]
    logs = finite_or_none(density.values(points)) - mixture.log_density(points)
    place = np.repeat(np.arange(len(around)), _NUM_TRIED)
    is_away = _is_away(points, around[: len(gaussians)])
    found: list[tuple[np.ndarray | None, np.ndarray]] = []
    for site, one in enumerate(gaussians):
        own = (place == site) & np.isfinite(logs)
        factor = safe_cholesky(one.covariances[0])
        found.append((_chosen(points[own], logs[own], rng), factor))
    away = is_away & np.isfinite(logs)
    share = np.exp(np.logaddexp.reduce(logs[away]) - np.logaddexp.reduce(logs))
    if share > _AWAY:
        starts, weights = points[away], _flattened(logs[away])
        spread = np.sqrt(weights @ (starts - weights @ starts) ** 2)
        found.append((_chosen(starts, logs[away], rng), np.diag(spread + 1e-6)))
    return found


def _is_away(points: np.ndarray, gaussians: list[Mixture]) -> np.ndarray:
    """Which points are beyond where draws of all the Gaussians lie."""
    dim = points.shape[1]
    away = np.ones(len(points), bool)
    for one in gaussians:
        z = np.linalg.solve(safe_cholesky(one.covariances[0]), (points - one.means[0]).T)
        # The squared length of normal noise has mean d and standard deviation √(2d).
        away &= np.sum(z**2, axis=0) > dim + 3.0 * np.sqrt(2.0 * dim)
    return away


def _chosen(points: np.ndarray, logs: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Points by their weights, one for each group; None where there is none."""
    if len(points) == 0:
        return None
    return points[rng.choice(len(points), NUM_GROUPS, p=_flattened(logs))]


def _flattened(logs: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """Weights raised to the largest of some powers that leaves several points effective."""
    for power in 0.5 ** np.arange(12):
        weights = np.exp(power * (logs - logs.max()))
        weights = weights / weights.sum()
        if 1.0 / np.sum(weights**2) >= NUM_GROUPS:
            break
    return weights


def _masses(
    density: Density, sites: list[Site], rng: np.random.Generator
) -> tuple[Float[np.ndarray, " sites"], float]:
    """The share of the mass that each site's mixture accounts for, and ln Z."""
    shares = np.full(len(sites), 1.0 / len(sites))
    points = [site.mixture.draw(_NUM_WEIGHED, rng) for site in sites]
    values = density.values(np.concatenate(points))
    log_sites = np.stack([site.mixture.log_density(np.concatenate(points)) for site in sites])
    log_mixed = np.logaddexp.reduce(np.log(shares)[:, None] + log_sites, axis=0)
    logs = finite_or_none(values) - log_mixed
    # Truncated (Ionides 2008): one weight must not decide alone.
    top = np.logaddexp.reduce(logs) - 0.5 * np.log(len(logs))
    log_evidence = float(np.logaddexp.reduce(logs) - np.log(len(logs)))
    weights = np.exp(np.minimum(logs, top) - top)
    for _ in range(50):
        log_parts = np.log(shares)[:, None] + log_sites
        parts = np.exp(log_parts - np.logaddexp.reduce(log_parts, axis=0)) @ weights
        shares = np.maximum(parts / parts.sum(), 1e-12)
    return shares / shares.sum(), log_evidence


def _is_resolved(gaussian: Mixture, dtype: Any) -> bool:
    """Whether floating-point numbers tell points within a standard deviation apart."""
    widths = np.sqrt(np.diag(gaussian.covariances[0]))
    resolution = 8.0 * np.finfo(dtype).eps * np.abs(gaussian.means[0])
    return bool(np.isfinite(widths).all() and (widths > resolution + np.finfo(dtype).tiny).all())


def _flat(draws: Float[np.ndarray, "draws chains dim"]) -> Float[np.ndarray, "all dim"]:
    return draws.reshape(-1, draws.shape[-1])


def _some(x: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """So many rows, no one twice before every other once."""
    rounds = -(-count // len(x))
    order = [rng.permutation(len(x)) for _ in range(rounds)]
    return x[np.concatenate(order)[:count]] if rounds else x[:0]
