"""Where chains and descents start, in flat coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError, NonFiniteError
from follmer.targets import Target

# Small, yet off the saddle that a network has at 0.
_SCALE = 0.1
# Scattered starts are uniform up to this far from 0, and drawn so often until one is sound.
_RADIUS = 2.0
_TRIALS = 16


def starts(
    target: Target, start: PyTree, num_chains: int, key: PRNGKeyArray
) -> Float[Array, "chains dim"]:
    """The user's parameter tree for every chain; small normal starts where it is None."""
    shape = (num_chains, target.dim)
    if start is None:
        return _SCALE * jax.random.normal(key, shape, target.dtype)
    x = target.unconstrain(start)
    if not np.isfinite(np.asarray(x)).all():
        raise InputError(
            "start is not finite in unconstrained coordinates.",
            cause="a value is not finite, or lies outside or on the edge of its constraint",
        )
    return jnp.broadcast_to(x, shape)


def scattered(target: Target, num_chains: int, key: PRNGKeyArray) -> Float[Array, "chains dim"]:
    """Wide uniform starts at which the density and its gradient are finite."""
    shape = (num_chains, _TRIALS, target.dim)
    trials = jax.random.uniform(key, shape, target.dtype, -_RADIUS, _RADIUS)

    @jax.jit
    def are_sound(x: Float[Array, "trials dim"], data: PyTree) -> Bool[Array, " trials"]:
        def is_sound(x: Float[Array, " dim"]) -> Bool[Array, ""]:
            value, gradient = jax.value_and_grad(target.log_density)(x, data)
            return jnp.isfinite(value) & jnp.isfinite(gradient).all()

        return jax.lax.map(is_sound, x)

    sound = np.asarray(are_sound(trials.reshape(-1, target.dim), target.data))
    sound = sound.reshape(num_chains, _TRIALS)
    if not sound.any(axis=1).all():
        raise NonFiniteError(
            f"the log density or its gradient is not finite at {_TRIALS} random starts in a row.",
            cause="the support is bounded, or the density overflows away from its mode",
            hint="start= a parameter tree; constraints for bounded parameters; target.check(key=…)",
        )
    return trials[np.arange(num_chains), np.argmax(sound, axis=1)]
