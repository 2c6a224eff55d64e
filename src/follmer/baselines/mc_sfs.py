"""MC-SFS: the heat-semigroup sampler in its stable form. No training; every draw pays for it."""

from typing import Any

from follmer.errors import InputError, closest
from follmer.paths import as_grid, grid_times
from follmer.posterior.heat_semigroup import HeatSemigroupSampler
from follmer.posterior.posterior import Posterior
from follmer.targets import Target, as_target
from follmer.tools.checks import options_checked, positive_float, positive_int

_VARIANTS = ("gradient", "stein")


@options_checked
def mc_sfs(
    target: Target,
    *,
    num_samples: int = 1000,
    num_steps: int = 100,
    gamma: float = 1.0,
    variant: str = "stein",
    grid: Any = "uniform",
) -> Posterior:
    """The heat-semigroup sampler of Huang et al., stable: a posterior without training.

    **Arguments:**

    - `num_samples`: Monte-Carlo draws behind each evaluation of the drift.
    - `variant`: "stein" (needs no gradients) or "gradient".
    """
    target = as_target(target)
    if variant not in _VARIANTS:
        raise InputError(f"variant={variant!r} is unknown.", hint=closest(str(variant), _VARIANTS))
    grid_times(as_grid(grid), positive_int("num_steps", num_steps))
    sampler = HeatSemigroupSampler(
        target,
        positive_int("num_samples", num_samples),
        positive_int("num_steps", num_steps),
        positive_float("gamma", gamma),
        variant,
        grid,
    )
    return Posterior(target, sampler)
