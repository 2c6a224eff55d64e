"""What many dimensions allow: scales by a few probes, and a point estimate by Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from follmer.mcmc.hmc import LogDensity
from follmer.targets import Target, random_batch

_PROBES = 8
_REFINEMENTS = 4
PROBED_GRADIENTS = 2 * _PROBES * _REFINEMENTS
# Widths are kept within this factor of their median.
_RANGE = 1e4


def probed_widths(
    log_density: LogDensity, point: Float[Array, " dim"], key: PRNGKeyArray
) -> Float[np.ndarray, " dim"]:
    """The scale of each coordinate by secants along random signs, a few gradients in all.

    Exact for a product of densities, as most priors are; other directions add noise.
    """
    signs = jax.random.rademacher(key, (_PROBES, len(point)), point.dtype)

    @jax.jit
    def precision(widths: Float[Array, " dim"]) -> Float[Array, " dim"]:
        def one(sign: Float[Array, " dim"]) -> Float[Array, " dim"]:
            ahead, behind = (jax.grad(log_density)(point + s * widths * sign) for s in (1, -1))
            return sign * (behind - ahead) / (2.0 * widths)

        return jnp.mean(jax.lax.map(one, signs), axis=0)

    widths = np.ones(len(point))
    for _ in range(_REFINEMENTS):
        found = np.asarray(precision(jnp.asarray(widths, point.dtype)), float)
        curved = np.isfinite(found) & (found > 0)
        if not curved.any():
            break
        middle = np.median(found[curved]) ** -0.5
        widths = np.where(curved, found, middle**-2) ** -0.5
        widths = np.clip(widths, middle / _RANGE, middle * _RANGE)
    return widths


def descend(
    target: Target,
    start: Float[Array, " dim"],
    key: PRNGKeyArray,
    *,
    batch_size: int | None,
    num_iterations: int,
    learning_rate: float,
) -> Float[Array, " dim"]:
    """A point of high density by Adam on mini-batches, the rate decayed along a cosine."""
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, num_iterations))

    @jax.jit
    def run(x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        def body(
            i: Int[Array, ""], carry: tuple[Array, optax.OptState]
        ) -> tuple[Array, optax.OptState]:
            x, state = carry
            batch_key = jax.random.fold_in(key, i)
            batch = random_batch(batch_key, target.data, target.num_data, batch_size)
            gradient = jax.grad(lambda x: -target.log_density(x, batch))(x)
            updates, state = adam.update(gradient, state, x)
            return optax.apply_updates(x, updates), state

        return jax.lax.fori_loop(0, num_iterations, body, (x, adam.init(x)))[0]

    return run(start)
