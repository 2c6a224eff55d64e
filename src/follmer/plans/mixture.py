"""The first rung: the Föllmer process of a density fitted to the population, in closed form."""

import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.drifts import GaussianMixture, ProductMixture
from follmer.errors import InputError
from follmer.mcmc.mixtures import Mixture, finite_or_none, safe_cholesky
from follmer.mcmc.population import Proposal
from follmer.mcmc.products import Product
from follmer.plans.plan import Plan
from follmer.plans.survey import Survey
from follmer.posterior.samplers import MixtureFlow
from follmer.targets import Affine
from follmer.tools.keys import generator

# Numbers of components that mixtures are filled up to: few sizes occur, so that other fits compile
# nothing anew.
_SIZES = (1, 64, 512)
# Draws by which weights are compared, and nats up to which they are the same.
_NUM_WEIGHED, _SAME = 256, 0.01
# End points that a draw is chosen from, and operations per gradient up to which many are.
_MANY, _FEW, _CHEAP = 4, 2, 1e6


class UnreachableError(InputError):
    """A rung cannot be stood on for this target; the next is tried."""


def mixture(survey: Survey, key: PRNGKeyArray) -> Plan:
    """The Föllmer process of a Gaussian mixture, or a product of such: nothing is trained."""
    population = survey.population
    if population is None and len(survey.modes.x) == 0:
        raise UnreachableError(
            "there are no draws to fit a mixture to, and no mode.",
            hint="target.check(key=…), or precondition='identity'",
        )
    affine, target = survey.affine, survey.target
    found: Proposal = survey.gaussian if population is None else population.proposal
    whitened = target.whitened(affine)
    density = _in_coordinates(found, affine, target.dtype)
    sampler = MixtureFlow(whitened, density, _candidates(found, survey, key))
    how = "by its curvature" if population is None else "fitted to chains"
    why = f"{survey.modes}: {_in_words(found)} {how}"
    return Plan("mixture", whitened, {}, why, sampler)


def _candidates(found: Proposal, survey: Survey, key: PRNGKeyArray) -> int:
    """End points that a draw is chosen from: one where all weigh the same."""
    x = found.draw(_NUM_WEIGHED, generator(key, "candidates"))
    logs = finite_or_none(survey.density.values(x)) - found.log_density(x)
    if np.ptp(logs) < _SAME:
        return 1
    return _MANY if survey.target.gradient_cost <= _CHEAP else _FEW


def _in_words(found: Proposal) -> str:
    if isinstance(found, Product):
        return "independent mixtures along every axis"
    count = len(found.shares)
    return "one Gaussian" if count == 1 else f"a mixture of {count} Gaussians"


def _in_coordinates(
    found: Proposal, affine: Affine, dtype: np.dtype
) -> GaussianMixture | ProductMixture:
    """The density on the device, in the coordinates of the affine map."""
    if isinstance(found, Mixture):
        return _gaussians(found, affine, dtype)
    origin, axes = affine.inverse_rows(found.origin[None])[0], _turned(affine, found.axes.T).T
    return ProductMixture(origin, axes, found.shares, found.means, found.sds, dtype)


def _gaussians(found: Mixture, affine: Affine, dtype: np.dtype) -> GaussianMixture:
    roots = safe_cholesky(found.covariances)
    dim = roots.shape[-1]
    columns = _turned(affine, roots.swapaxes(1, 2).reshape(-1, dim)).reshape(roots.shape)
    lower = safe_cholesky(columns.swapaxes(1, 2) @ columns)
    means, extra = affine.inverse_rows(found.means), _missing(len(found.shares))
    eye = np.broadcast_to(np.eye(dim), (extra, dim, dim))
    return GaussianMixture(
        np.concatenate([found.shares, np.zeros(extra)]),
        np.concatenate([means, np.zeros((extra, dim))]),
        np.concatenate([lower, eye]),
        dtype,
    )


def _turned(affine: Affine, directions: np.ndarray) -> np.ndarray:
    """Rows of directions in the affine map's coordinates: they have no origin."""
    zero = affine.inverse_rows(np.zeros((1, directions.shape[1])))
    return affine.inverse_rows(directions) - zero


def _missing(count: int) -> int:
    """Empty components that fill a mixture up."""
    return next((size for size in _SIZES if size >= count), count) - count
