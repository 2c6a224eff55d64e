"""The heat-semigroup sampler: every draw pays for its own drift."""

from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from follmer.drifts import HeatSemigroup
from follmer.errors import InputError
from follmer.paths import Diffusion, as_grid, grid_times, simulate
from follmer.posterior.samplers import AbstractSimulator, Weighted
from follmer.targets import Target


class HeatSemigroupSampler(AbstractSimulator):
    """Paths steered by the Monte-Carlo Föllmer drift, with fresh draws in every step and path.

    The drift's own randomness is independent of the path's noise, so the weights stay exact.
    """

    target: Target
    num_samples: int
    num_steps: int
    gamma: float
    variant: str
    grid: Any
    kind: ClassVar[str] = "mc_sfs"

    def draw(self, keys: Key[Array, " draws"], num_steps: int | None) -> Weighted:
        times = grid_times(as_grid(self.grid), self.num_steps if num_steps is None else num_steps)
        diffusion = Diffusion(self.target.dim, self.gamma, times, self.target.dtype)

        def log_terminal(x: Float[Array, " dim"]) -> Float[Array, ""]:
            return self.target.log_density(x) - diffusion.log_reference(x)

        def one(key: PRNGKeyArray) -> tuple[Array, Array]:
            drift_key, noise_key = jax.random.split(key)
            drift = HeatSemigroup(
                log_terminal, self.gamma, self.num_samples, self.variant == "gradient", drift_key
            )
            path = simulate(drift, diffusion, diffusion.noise(noise_key))
            return path.end, log_terminal(path.end) + path.log_ratio

        # One path at a time: each already evaluates `num_samples` densities per step.
        return jax.lax.map(one, keys)

    def log_weights_to(
        self, ends: Float[Array, "draws dim"], keys: Key[Array, " draws"]
    ) -> Float[Array, " draws"]:
        raise InputError("the heat-semigroup sampler has no upper bound on the evidence.")

    def describe(self) -> dict[str, Any]:
        return {
            "num_samples": self.num_samples,
            "num_steps": self.num_steps,
            "gamma": self.gamma,
            "variant": self.variant,
            "grid": self.grid if isinstance(self.grid, str) else "custom",
        }

    def arrays(self) -> dict[str, np.ndarray]:
        return {}
