"""Priors of a network's parameters: independent, centred at 0, normalising constants kept."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.scipy.stats import laplace, norm
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError, closest
from follmer.tools.checks import named_or_own, positive_float, positive_floats

Prior = Callable[[PyTree], Float[Array, ""]]

# Where the inputs stand in a kernel's shape, and how many of them feed one output.
_LAYOUTS: dict[str, Callable[[tuple[int, ...]], int]] = {
    "out_in": lambda shape: math.prod(shape[1:]),
    "in_out": lambda shape: math.prod(shape[:-1]),
}


class Normal(eqx.Module):
    """N(0, sd²); `sd` is a number, or a tree of them like the parameters (or a prefix of it)."""

    sd: PyTree = 1.0

    def __check_init__(self) -> None:
        positive_floats("sd", self.sd)

    def __call__(self, parameters: PyTree) -> Float[Array, ""]:
        return _total(norm.logpdf, parameters, self.sd)


class Laplace(eqx.Module):
    """Laplace(0, scale); `scale` is a number, or a tree like the parameters (or a prefix of it)."""

    scale: PyTree = 1.0

    def __check_init__(self) -> None:
        positive_floats("scale", self.scale)

    def __call__(self, parameters: PyTree) -> Float[Array, ""]:
        return _total(laplace.logpdf, parameters, self.scale)


class FanIn(eqx.Module):
    """N(0, scale²/fan_in) for matrices and kernels, N(0, scale²) for biases and other vectors.

    `layout` says where a kernel's inputs stand: "out_in" for (out, in, …), as in Equinox and
    PyTorch; "in_out" for (…, in, out), as in Flax and in x @ w.
    """

    layout: str
    scale: float = 1.0

    def __check_init__(self) -> None:
        positive_float("scale", self.scale)
        if self.layout not in _LAYOUTS:
            raise InputError(
                f"layout={self.layout!r} is unknown.", hint=closest(str(self.layout), _LAYOUTS)
            )

    def __call__(self, parameters: PyTree) -> Float[Array, ""]:
        return _total(norm.logpdf, parameters, jax.tree.map(self._sd, parameters))

    def _sd(self, leaf: Array) -> float:
        shape = jnp.shape(leaf)
        return self.scale if len(shape) < 2 else self.scale / math.sqrt(self._fan_in(shape))

    @property
    def _fan_in(self) -> Callable[[tuple[int, ...]], int]:
        return _LAYOUTS[self.layout]


class UnknownScale(eqx.Module):
    """N(0, s²) for all weights of matrices with one unknown s, and N(0, scale²) for vectors.

    s² is inverse gamma around scale², with `dof`/2 as its shape, and integrated out: together the
    weights are a multivariate Student's t. So data tell how large weights are.
    """

    scale: float | Array = 1.0
    dof: float | Array = 3.0  # the fewest whole ones with a finite variance

    def __check_init__(self) -> None:
        positive_floats("scale", self.scale)
        positive_floats("dof", self.dof)

    def __call__(self, parameters: PyTree) -> Float[Array, ""]:
        leaves = jax.tree.leaves(parameters)
        weights = [leaf for leaf in leaves if leaf.ndim > 1]
        vectors = [leaf for leaf in leaves if leaf.ndim < 2]
        count, dof = sum(leaf.size for leaf in weights), self.dof
        squares = sum((jnp.sum((leaf / self.scale) ** 2) for leaf in weights), start=jnp.zeros(()))
        shared = (
            gammaln(0.5 * (dof + count))
            - gammaln(0.5 * dof)
            - 0.5 * count * jnp.log(dof * jnp.pi * self.scale**2)
            - 0.5 * (dof + count) * jnp.log1p(squares / dof)
        )
        return shared + _total(norm.logpdf, vectors, self.scale)


PRIORS: dict[str, Prior] = {"normal": Normal(), "laplace": Laplace()}


def as_prior(prior: Any) -> Prior:
    """The prior of that name, or the user's own function of the parameters."""
    return named_or_own(
        "prior", prior, PRIORS, "a function of the parameters that returns their log density"
    )


def _total(log_density: Callable[..., Array], parameters: PyTree, scale: PyTree) -> Array:
    try:
        scales = jax.tree.map(
            lambda part, leaves: jax.tree.map(
                lambda leaf: jnp.broadcast_to(jnp.asarray(part, leaf.dtype), leaf.shape), leaves
            ),
            scale,
            parameters,
        )
    except ValueError as error:
        raise InputError(
            f"the prior's scales do not fit the parameters: {error}",
            hint="one number for all, or jax.tree.map(lambda leaf: 0.5, parameters)",
        ) from None
    terms = jax.tree.map(lambda x, s: jnp.sum(log_density(x, 0.0, s)), parameters, scales)
    return sum(jax.tree.leaves(terms), start=jnp.zeros(()))
