"""Four modes far apart, of unequal mass: a Markov chain sees the one that it starts in."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots

MODES = jnp.array([[-20.0, 0.0], [0.0, 15.0], [12.0, -18.0], [25.0, 10.0]])
SHARES = np.array([0.1, 0.2, 0.3, 0.4])
SD = 1.0


def log_density(x: jax.Array) -> jax.Array:
    logs = jnp.sum(jax.scipy.stats.norm.logpdf(x, MODES, SD), axis=1)
    return jax.nn.logsumexp(logs, b=jnp.asarray(SHARES))


def shares(draws: np.ndarray) -> np.ndarray:
    """The share of draws that are nearest to each mode."""
    nearest = np.argmin(np.linalg.norm(draws[:, None] - np.asarray(MODES), axis=-1), axis=1)
    return np.bincount(nearest, minlength=len(MODES)) / len(draws)


def main() -> Figure:
    fit_key, chain_key, draw_key = jax.random.split(jax.random.key(0), 3)
    target = follmer.Target(log_density, like=jnp.zeros(2))
    posterior = follmer.fit(target, key=fit_key)
    chain = follmer.nuts(target, key=chain_key, num_chains=1, num_samples=2000)
    found = {
        "N-SFS": ("n_sfs", np.asarray(posterior.sample(2000, key=draw_key))),
        "one chain of NUTS": ("nuts", np.asarray(chain.sample(2000, key=draw_key))),
    }
    print("true shares        ", SHARES)
    figure, panels = plots.panels(list(found))
    axis = np.linspace(-32, 32, 200)
    values = np.asarray(
        jax.vmap(jax.vmap(log_density))(jnp.stack(jnp.meshgrid(axis, axis), axis=-1))
    )
    for axes, (name, (method, draws)) in zip(panels, found.items(), strict=True):
        print(f"{name:<19}", shares(draws).round(3))
        plots.scatter_over_contours(axes, draws[:800], axis, axis, values, method=method)
    print(posterior.verdict)
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("far_modes.svg"))
