"""A density bent like a banana: from a function of two numbers to draws and a verdict."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots


def log_density(x: jax.Array) -> jax.Array:
    """x₀ ~ N(0, 1) and x₁ ~ N(x₀², ½²), whose constants are kept: ln Z = 0."""
    norm = jax.scipy.stats.norm.logpdf
    return norm(x[0]) + norm(x[1], x[0] ** 2, 0.5)


def main() -> Figure:
    fit_key, draw_key = jax.random.split(jax.random.key(0))
    posterior = follmer.fit(follmer.Target(log_density, like=jnp.zeros(2)), key=fit_key)
    print(posterior.summary(key=draw_key))
    first, second = np.linspace(-3.5, 3.5, 120), np.linspace(-2, 9, 120)
    grid = jnp.stack(jnp.meshgrid(first, second), -1)
    values = np.asarray(jax.vmap(jax.vmap(log_density))(grid))
    figure, (axes,) = plots.panels(["Draws over the density's contours"])
    draws = posterior.sample(800, key=draw_key)
    plots.scatter_over_contours(axes, np.asarray(draws), first, second, values)
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("banana.svg"))
