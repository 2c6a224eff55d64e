"""Preconditioners by name: each finds coordinates in which the target is near N(0, I)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.errors import InputError, optional_module
from follmer.mcmc.climbs import Ends, climb
from follmer.plans.laplace import diagonal_widths
from follmer.plans.start import (
    Start,
    automatic,
    by_laplace,
    by_prior,
    explored_from,
    gradient_cost,
    identity,
)
from follmer.targets import Target
from follmer.targets.affine import Affine, diagonal, from_covariance
from follmer.tools.checks import named_or_own

_RANK = 64
_POWER_ITERATIONS = 4


def _ends(target: Target) -> Ends:
    ends = climb(target.log_density, np.zeros((1, target.dim), target.dtype))
    if len(ends.x) == 0:
        raise InputError(
            "no mode of the density was found: the climb from 0 met values that are not finite.",
            hint="target.check(key=…), or precondition='identity'",
        )
    return ends


def _diagonal(target: Target, key: PRNGKeyArray) -> Start:
    mode = jnp.asarray(_ends(target).x[0])
    widths = diagonal_widths(target.log_density, mode)
    return Start(diagonal(mode, widths, target.dtype), {}, "scaled coordinate by coordinate")


def _low_rank(target: Target, key: PRNGKeyArray) -> Start:
    """A diagonal, and the directions in which the curvature differs most from it."""
    mode = jnp.asarray(_ends(target).x[0])
    widths = diagonal_widths(target.log_density, mode)
    scale = jnp.asarray(widths, target.dtype)
    rank = min(_RANK, target.dim)

    @jax.jit
    def excess(directions: Float[Array, "dim rank"]) -> Float[Array, "dim rank"]:
        """(S H S − I) V for the scaled Hessian of −ln p."""

        def one(v: Array) -> Array:
            product = jax.jvp(jax.grad(target.log_density), (mode,), (scale * v,))[1]
            return -scale * product - v

        return jax.vmap(one, 1, 1)(directions)

    basis = np.linalg.qr(np.asarray(jax.random.normal(key, (target.dim, rank)), float))[0]
    for _ in range(_POWER_ITERATIONS):
        basis = np.linalg.qr(np.asarray(excess(jnp.asarray(basis, target.dtype)), float))[0]
    small = basis.T @ np.asarray(excess(jnp.asarray(basis, target.dtype)), float)
    values, rotation = np.linalg.eigh(0.5 * (small + small.T))
    # A direction along which the density rises is left as it is.
    stretch = 1.0 / np.sqrt(np.where(values > -1.0 + 1e-8, 1.0 + values, 1.0))
    parts = (mode, scale, basis @ rotation, stretch)
    affine = Affine(*(jnp.asarray(part, target.dtype) for part in parts))
    return Start(affine, {}, f"scaled, and stretched along {rank} directions of the curvature")


def _pathfinder(target: Target, key: PRNGKeyArray) -> Start:
    """BlackJAX's Pathfinder: the best Gaussian along an L-BFGS trajectory."""
    pathfinder = optional_module(
        "blackjax.vi.pathfinder", extra="blackjax", purpose="precondition='pathfinder'"
    )
    start_key, run_key, draw_key = jax.random.split(key, 3)
    start = jax.random.normal(start_key, (target.dim,), target.dtype)
    state, _ = jax.jit(lambda key, x: pathfinder.approximate(key, target.log_density, x))(
        run_key, start
    )
    draws, _ = pathfinder.sample(draw_key, state, max(4096, 16 * target.dim))
    draws = np.asarray(draws, float)
    affine = from_covariance(draws.mean(axis=0), np.atleast_2d(np.cov(draws.T)), target.dtype)
    return Start(affine, {}, "whitened by Pathfinder's Gaussian")


def _laplace(target: Target, key: PRNGKeyArray) -> Start:
    return by_laplace(target, _ends(target), gradient_cost(target))


PRECONDITIONERS: dict[str, Callable[[Target, PRNGKeyArray], Start]] = {
    "auto": automatic,
    "identity": lambda target, key: identity(target),
    "prior": by_prior,
    "diagonal": _diagonal,
    "laplace": _laplace,
    "low_rank": _low_rank,
    "pathfinder": _pathfinder,
    "explore": explored_from,
}


def warm_up(precondition: Any, target: Target, key: PRNGKeyArray) -> Start:
    """The start that a preconditioner of that name finds, or the user's own affine map."""
    if isinstance(precondition, Affine):
        if precondition.mean.shape != (target.dim,):
            raise InputError(
                f"the affine map is for {len(precondition.mean)} coordinates; the target has "
                f"{target.dim}."
            )
        return Start(precondition, {}, "whitened by the given affine map")
    form = "'moments', or a follmer.Affine"
    return named_or_own("precondition", precondition, PRECONDITIONERS, form)(target, key)
