"""The no-U-turn sampler (Hoffman & Gelman 2014), by BlackJAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from follmer.baselines.iterating import Step, iterate
from follmer.baselines.starts import scattered, starts
from follmer.errors import InputError, optional_module
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import StoredDraws
from follmer.targets import Target, as_target
from follmer.tools.checks import as_key, fraction, options_checked, positive_int


@options_checked
def nuts(
    target: Target,
    *,
    key: PRNGKeyArray,
    num_samples: int = 1000,
    num_warmup: int = 500,
    num_chains: int = 4,
    target_acceptance: float = 0.8,
    start: PyTree = None,
    progress: bool = True,
) -> Posterior:
    """Exact draws by Hamiltonian trajectories of adaptive length. Needs BlackJAX.

    For small targets: every draw takes up to 1023 gradients of all the data, and all draws are kept
    in memory. Chains seldom cross between separate modes, and when none has found a mode they agree
    all the same. No target is refused.

    **Arguments:**

    - `num_samples`: draws kept of each chain.
    - `num_warmup`: iterations before them that adapt step size and a diagonal mass matrix, each
      chain its own.
    - `target_acceptance`: higher makes shorter steps and fewer divergences.
    - `start`: a parameter tree where all chains start; by default uniform draws from [−2, 2] in
      unconstrained coordinates.
    """
    target = as_target(target)
    start_key, warm_key, run_key = jax.random.split(as_key(key), 3)
    num_samples = positive_int("num_samples", num_samples)
    num_warmup = positive_int("num_warmup", num_warmup)
    num_chains = positive_int("num_chains", num_chains)
    if fraction("target_acceptance", target_acceptance) == 0:
        raise InputError("target_acceptance must be above 0.")
    blackjax = optional_module("blackjax", extra="blackjax", purpose="follmer.nuts")
    if start is None:
        x = scattered(target, num_chains, start_key)
    else:
        x = starts(target, start, num_chains, start_key)
    warmed_up = _warm_up(blackjax, target, num_warmup, target_acceptance)
    keys = jax.random.split(warm_key, num_chains)
    states, tuned, num_gradients = warmed_up(keys, x, target.data)
    step = _step(blackjax, target, tuned, num_chains, run_key)
    (_, num_gradients, divergences), draws = iterate(
        step,
        (states, num_gradients, jnp.zeros(num_chains, jnp.int32)),
        target.data,
        num_records=num_samples,
        name="NUTS",
        hint="another start=",
        progress=progress,
    )
    diverged = int(np.sum(divergences))
    lost = [f"{diverged} trajectories diverged"] if diverged else []
    return Posterior(
        target,
        StoredDraws(np.swapaxes(draws, 0, 1).copy(), "nuts", exact=True, divergences=diverged),
        notes=(f"NUTS: {num_warmup} iterations of warm-up in each chain", *lost),
        gradient_evaluations=int(np.sum(np.asarray(num_gradients, np.int64))),
    )


def _warm_up(
    blackjax: Any, target: Target, num_warmup: int, target_acceptance: float
) -> Callable[[Array, Array, PyTree], tuple[PyTree, PyTree, Array]]:
    """From keys and places to adapted states, tuned parameters and gradients of each chain."""

    @jax.jit
    def warmed_up(keys: Array, x: Float[Array, "chains dim"], data: PyTree) -> PyTree:
        def one(key: PRNGKeyArray, x: Float[Array, " dim"]) -> PyTree:
            adaptation = blackjax.window_adaptation(
                blackjax.nuts,
                lambda x: target.log_density(x, data),
                target_acceptance_rate=target_acceptance,
                adaptation_info_fn=lambda state, info, adapted: info.num_integration_steps,
            )
            (state, found), num_gradients = adaptation.run(key, x, num_warmup)
            return state, found, jnp.sum(num_gradients)

        return jax.vmap(one)(keys, x)

    return warmed_up


def _step(blackjax: Any, target: Target, tuned: PyTree, num_chains: int, key: PRNGKeyArray) -> Step:
    """One trajectory of every chain; gradients and divergences are counted, places recorded."""
    kernel = blackjax.nuts.build_kernel()

    def step(
        carry: tuple[PyTree, Array, Array], iteration: Int[Array, ""], data: PyTree
    ) -> tuple[tuple[PyTree, Array, Array], Array]:
        states, num_gradients, divergences = carry

        def one(key: PRNGKeyArray, state: PyTree, tuned: PyTree) -> tuple[PyTree, PyTree]:
            return kernel(key, state, lambda x: target.log_density(x, data), **tuned)

        keys = jax.random.split(jax.random.fold_in(key, iteration), num_chains)
        states, info = jax.vmap(one)(keys, states, tuned)
        num_gradients += info.num_integration_steps
        return (states, num_gradients, divergences + info.is_divergent), states.position

    return step
