"""N-SFS beside BlackJAX's mean-field variational inference: the same density, the same loop.

Needs the extra `blackjax`. The target is correlated, which a mean-field normal cannot follow.
"""

import blackjax
import jax
import jax.numpy as jnp
import optax
from blackjax.base import VIAlgorithm

import follmer

COVARIANCE = jnp.array([[1.0, 0.9], [0.9, 1.0]])


def log_density(position: dict[str, jax.Array]) -> jax.Array:
    return jax.scipy.stats.multivariate_normal.logpdf(position["x"], jnp.ones(2), COVARIANCE)


position = {"x": jnp.zeros(2)}
num_steps = 1000
nsfs = follmer.NSFS(follmer.from_log_density(log_density, position), num_iterations=num_steps)

algorithms = {
    "mean field": blackjax.meanfield_vi(log_density, optax.adam(1e-2), num_samples=64),
    # NSFS is as pure as BlackJAX's algorithms; only the order of its arguments differs.
    "N-SFS": VIAlgorithm(
        init=lambda position: nsfs.init(jax.random.key(0)),
        step=lambda key, state: nsfs.step(state, key),
        sample=lambda key, state, count: nsfs.sample(state, key, count).position,
    ),
}


def run(algorithm: VIAlgorithm, key: jax.Array) -> jax.Array:
    """Draws of a trained algorithm, whoever wrote it."""
    train_key, sample_key = jax.random.split(key)
    state = algorithm.init(position)
    keys = jax.random.split(train_key, num_steps)
    state, _ = jax.lax.scan(lambda state, key: algorithm.step(key, state), state, keys)
    return algorithm.sample(sample_key, state, 4000)["x"]


for name, algorithm in algorithms.items():
    draws = jax.jit(lambda key, algorithm=algorithm: run(algorithm, key))(jax.random.key(1))
    spread, correlation = jnp.std(draws, axis=0), jnp.corrcoef(draws.T)[0, 1]
    print(f"{name:<11} mean {jnp.mean(draws, axis=0)}, sd {spread}, correlation {correlation:.2f}")
print("exactly     mean [1. 1.], sd [1. 1.], correlation 0.90")
