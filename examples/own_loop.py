"""Training written out: NSFS's init, step and sample are pure, so jit and vmap them as you like.

Three drifts are trained side by side from different keys.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots


def log_density(x: jax.Array) -> jax.Array:
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, jnp.array([1.0, -1.0]), 0.5))


def main() -> Figure:
    target = follmer.Target(log_density, like=jnp.zeros(2))
    algorithm = follmer.NSFS(target, objective="log_variance", num_iterations=300, num_steps=16)
    init_keys, train_keys, sample_keys = jax.random.split(jax.random.key(0), (3, 3))
    states = jax.vmap(algorithm.init)(init_keys)

    @jax.jit
    def train(state: follmer.State, key: jax.Array) -> tuple[follmer.State, follmer.Info]:
        keys = jax.random.split(key, algorithm.num_iterations)
        return jax.lax.scan(algorithm.step, state, keys)

    states, infos = jax.vmap(train)(states, train_keys)
    draws = jax.vmap(lambda state, key: algorithm.sample(state, key, 1000))(states, sample_keys)
    print("ELBO of each drift:", jnp.mean(draws.log_weights, axis=1))
    print("mean of its draws:", jnp.mean(draws.position, axis=1))
    figure, (axes,) = plots.panels(["Three drifts, trained side by side"])
    axes.plot(np.asarray(infos.elbo).T, linewidth=1)
    axes.set(xlabel="iteration", ylabel="ELBO of the step's own paths", ylim=(-5, 0.3))
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("own_loop.svg"))
