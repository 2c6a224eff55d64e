"""Stochastic gradient Langevin dynamics (Welling & Teh 2011), by BlackJAX's kernel."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.baselines.iterating import Step, iterate
from follmer.baselines.starts import starts
from follmer.baselines.step_sizes import as_step_sizes
from follmer.errors import InputError, optional_module
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import StoredDraws
from follmer.targets import Target, as_target, checked_batch_size, random_batch
from follmer.tools.checks import as_key, nonnegative_int, options_checked, positive_int


@options_checked
def sgld(
    target: Target,
    *,
    key: PRNGKeyArray,
    step_size: PyTree = None,
    num_iterations: int = 10_000,
    batch_size: int | None = None,
    burn_in: int | None = None,
    thinning: int = 10,
    num_chains: int = 1,
    start: PyTree = None,
    progress: bool = True,
) -> Posterior:
    """Noisy gradient ascent whose iterates are near draws of the target. Needs BlackJAX.

    Each iteration moves the unconstrained coordinates by x ← x + (λ/2) ∇ln p(x) + √λ ξ, with fresh
    standard normal ξ every time and the gradient of a mini-batch, scaled to all the data. Nothing
    corrects for the length of the steps: long ones bias the draws, as does the batches' noise, and
    short ones mix slowly. The draws come with no proof of quality.

    **Arguments:**

    - `step_size`: λ. A number; a function of the iteration i = 0, 1, … that JAX can trace, such as
      `PolynomialDecay(a, b, c)` for a/(i+b)^c; or a tree like the target's `like` (or a prefix
      of it) of these, for separate step sizes: `{"w": PolynomialDecay(1e-3), "sigma": 1e-5}`. By
      default `PolynomialDecay(10 / number of data points, b=1000)`, which begins at 0.22 over that
      number and is right in size where each data point (or without data, the density) curves
      ln p by about 1. Expect to tune it: steps beyond 4 over the greatest curvature diverge.
    - `num_iterations`: in all, the `burn_in` included.
    - `batch_size`: data points per iteration, drawn anew; None uses all.
    - `burn_in`: first iterations, of which nothing is kept; half of all by default.
    - `thinning`: one of so many iterations is kept thereafter.
    - `num_chains`: independent chains, run side by side.
    - `start`: a parameter tree where all chains start; by default each starts at a draw of
      N(0, 0.1²) in unconstrained coordinates.

    Raises `NonFiniteError` where a chain diverges.
    """
    target = as_target(target)
    start_key, run_key = jax.random.split(as_key(key))
    num_iterations = positive_int("num_iterations", num_iterations)
    num_chains = positive_int("num_chains", num_chains)
    batch_size = checked_batch_size(batch_size, target.num_data)
    burn_in, thinning, num_draws = _kept(num_iterations, burn_in, thinning)
    sizes = as_step_sizes(step_size, target, num_iterations)
    blackjax = optional_module("blackjax", extra="blackjax", purpose="follmer.sgld")
    step = _step(blackjax, target, sizes, batch_size, num_chains, run_key)
    _, draws = iterate(
        step,
        starts(target, start, num_chains, start_key),
        target.data,
        num_records=num_draws,
        burn_in=burn_in,
        thinning=thinning,
        name="SGLD",
        hint="a smaller step_size, such as PolynomialDecay with a tenth of its a",
        progress=progress,
    )
    return _posterior(target, np.swapaxes(draws, 0, 1).copy(), burn_in, thinning)


def _posterior(
    target: Target, draws: Float[np.ndarray, "chains draws dim"], burn_in: int, thinning: int
) -> Posterior:
    num_chains, num_draws, _ = draws.shape
    run = burn_in + num_draws * thinning
    return Posterior(
        target,
        StoredDraws(draws, "sgld", exact=False),
        notes=(f"SGLD: {run} iterations, the first {burn_in} dropped, 1 in {thinning} kept",),
        gradient_evaluations=run * num_chains,
    )


def _kept(num_iterations: int, burn_in: Any, thinning: Any) -> tuple[int, int, int]:
    """Iterations dropped at first, one of how many is kept, and how many are."""
    thinning = positive_int("thinning", thinning)
    burn_in = num_iterations // 2 if burn_in is None else nonnegative_int("burn_in", burn_in)
    num_draws = (num_iterations - burn_in) // thinning
    if num_draws < 1:
        raise InputError(
            f"nothing would be kept of {num_iterations} iterations with a burn_in of {burn_in} and "
            f"a thinning of {thinning}.",
            hint="a larger num_iterations; smaller burn_in or thinning",
        )
    return burn_in, thinning, num_draws


def _step(
    blackjax: Any,
    target: Target,
    sizes: Callable[[Int[Array, ""]], Float[Array, "..."]],
    batch_size: int | None,
    num_chains: int,
    key: PRNGKeyArray,
) -> Step:
    """One move of every chain, by a batch of its own; the new places are recorded."""
    kernel = blackjax.sgld(jax.grad(target.log_density))

    def step(
        x: Float[Array, "chains dim"], iteration: Int[Array, ""], data: PyTree
    ) -> tuple[Array, Array]:
        def one(x: Float[Array, " dim"], key: PRNGKeyArray) -> Float[Array, " dim"]:
            batch_key, noise_key = jax.random.split(key)
            batch = random_batch(batch_key, data, target.num_data, batch_size)
            # BlackJAX moves by ε ∇ln p + √(2ε) ξ.
            return kernel.step(noise_key, x, batch, 0.5 * sizes(iteration))

        keys = jax.random.split(jax.random.fold_in(key, iteration), num_chains)
        x = jax.vmap(one)(x, keys)
        return x, x

    return step
