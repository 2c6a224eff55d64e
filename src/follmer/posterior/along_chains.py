"""Fresh draws of a network's posterior: the Föllmer process of a mixture laid along chains."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from follmer.drifts.low_rank import LowRankMixture
from follmer.errors import InputError
from follmer.posterior.samplers import AbstractSampler, StoredDraws, Weighted, in_chunks_of_keys
from follmer.targets import AbstractTarget
from follmer.tools.keys import KeyRows, as_keys
from follmer.tools.mesh import in_turns
from follmer.tools.programs import compiled

# What a file keeps of the mixture.
_PARTS = ("points", "width", "floor", "log_shares")
# Draws that are made at once.
_DRAWS_AT_ONCE = 16


class ChainFlow(AbstractSampler):
    """Draws of a `LowRankMixture` of chains' states: fresh ones, which never repeat.

    Their exact weights are known (`log_weights`), and seldom of use: in a network's weight space
    they are far from even. So all draws count equally elsewhere, as those of the chains do.
    """

    target: AbstractTarget
    mixture: LowRankMixture
    num_chains: int = eqx.field(static=True)
    kind: ClassVar[str] = "along_chains"
    weighs: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    divergences: ClassVar[int] = 0

    @property
    def draws(self) -> Float[np.ndarray, "chains draws dim"]:
        """The chains' states that the mixture is laid along."""
        points = np.asarray(self.mixture.points)
        return points.reshape(self.num_chains, -1, points.shape[-1])

    @property
    def shares(self) -> Float[np.ndarray, " chains"]:
        """The chains' parts in the mixture."""
        parts = np.exp(np.asarray(self.mixture.log_shares, float))
        return parts.reshape(self.num_chains, -1).sum(axis=1)

    def sample(
        self, count: int, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> Weighted:
        self._refuse_steps(num_steps)
        (x,) = in_chunks_of_keys(
            lambda rows: (_draw(self.mixture, rows),), count, key, progress=progress
        )
        return x, jnp.zeros(count, x.dtype)

    def log_weights(
        self, count: int, key: PRNGKeyArray, *, progress: bool
    ) -> Float[Array, " draws"]:
        """The exact log weights of `sample` with the same key: the target's density over the
        mixture's."""

        def weigh(rows: KeyRows) -> tuple[Array]:
            return (_log_weights(self.target, self.mixture, rows),)

        return in_chunks_of_keys(weigh, count, key, progress=progress)[0]

    def by_chain(
        self, count: int | None, key: PRNGKeyArray, num_steps: int | None, *, progress: bool
    ) -> tuple[Float[Array, "chains draws dim"], Float[Array, "chains draws"]]:
        """The chains' own states, or evenly spaced ones."""
        stored = StoredDraws(self.draws, self.kind, exact=False, shares=self.shares)
        return stored.by_chain(count, key, num_steps, progress=progress)

    def describe(self) -> dict[str, Any]:
        return {"num_chains": self.num_chains}

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"mixture_{name}": np.asarray(getattr(self.mixture, name)) for name in _PARTS}

    def _refuse_steps(self, num_steps: int | None) -> None:
        if num_steps is not None:
            raise InputError(
                "num_steps was given, but the steps of this flow are exact: one is enough.",
                hint="leave num_steps out",
            )


def along_chains(
    target: AbstractTarget,
    chains: Float[np.ndarray, "chains draws dim"],
    size: int,
    width: float,
    floor: float,
    shares: Float[np.ndarray, " chains"] | None = None,
) -> ChainFlow:
    """The flow of one Gaussian for each `size` consecutive states of every chain.

    First states that are left over are left out. Chains have the given shares, or equal ones.
    """
    num_chains, length, dim = chains.shape
    kept = chains[:, length % size :] if length >= size else chains
    points = kept.reshape(-1, min(size, length), dim)
    shares = np.full(num_chains, 1.0 / num_chains) if shares is None else shares
    log_shares = np.repeat(np.log(shares * num_chains / len(points)), len(points) // num_chains)
    parts = (points, width, floor, log_shares)
    mixture = LowRankMixture(*(jnp.asarray(part, target.dtype) for part in parts))
    return ChainFlow(target, mixture, num_chains)


def rebuild_along_chains(
    target: AbstractTarget, settings: dict[str, Any], arrays: dict[str, np.ndarray]
) -> ChainFlow:
    """The sampler that a file holds."""
    parts = (jnp.asarray(arrays[f"mixture_{name}"], target.dtype) for name in _PARTS)
    return ChainFlow(target, LowRankMixture(*parts), settings["num_chains"])


@compiled
def _draw(mixture: LowRankMixture, rows: KeyRows) -> Float[Array, "draws dim"]:
    # Each copies its component's points.
    return in_turns(mixture.draw, as_keys(rows), _DRAWS_AT_ONCE)


@compiled
def _log_weights(
    target: AbstractTarget, mixture: LowRankMixture, rows: KeyRows
) -> Float[Array, " draws"]:
    def one(key: PRNGKeyArray) -> Float[Array, ""]:
        x = mixture.draw(key)
        return target.log_density(x) - mixture.log_density(x)

    # One after the other: all data are looked at for each.
    return in_turns(one, as_keys(rows))
