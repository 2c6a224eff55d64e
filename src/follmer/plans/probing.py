"""How much of a target a Gaussian finds."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.mcmc.resampling import log_mean_weight
from follmer.targets import Target
from follmer.targets.affine import Affine
from follmer.tools.host import normals

_NUM_DRAWS, _AT_ONCE = 1024, 64


class Probe(NamedTuple):
    """ln Z by importance sampling from a Gaussian, and how far the Gaussian's ELBO is below it.

    Estimates of Z hardly ever come out much too large: where one Gaussian finds far more than
    another, the other misses mass. A funnel is highest where it has next to none.
    """

    log_evidence: float
    gap: float

    @property
    def elbo(self) -> float:
        return self.log_evidence - self.gap


def probe(target: Target, affine: Affine, key: PRNGKeyArray) -> Probe:
    """Look at a target through the Gaussian that an affine map makes of N(0, I)."""
    noise = normals(key, (_NUM_DRAWS, target.dim), target.dtype)
    log_weights = np.asarray(_weighed(target, affine, noise, target.data), float)
    log_weights = np.where(np.isnan(log_weights), -np.inf, log_weights)
    if not np.isfinite(log_weights.max()):
        return Probe(-np.inf, np.inf)
    log_evidence = log_mean_weight(log_weights)
    return Probe(log_evidence, float(log_evidence - log_weights.mean()))


@eqx.filter_jit
def _weighed(
    target: Target, affine: Affine, noise: Float[Array | np.ndarray, "draws dim"], data: PyTree
) -> Float[Array, " draws"]:
    whitened = target.whitened(affine)
    constant = 0.5 * target.dim * np.log(2.0 * np.pi)

    def one(z: Float[Array, " dim"]) -> Float[Array, ""]:
        return whitened.log_density(z, data) + 0.5 * z @ z + constant

    return jax.lax.map(one, noise, batch_size=_AT_ONCE)
