"""The method at a glance: python docs/figures/method.py writes method.svg beside itself.

A one-dimensional posterior of two modes, its Föllmer drift by quadrature, and the library's paths.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from follmer import plots
from follmer.paths import Diffusion, grid_times, simulate, uniform
from follmer.paths import Path as Paths

GAMMA = 1.0
PLACES = jnp.linspace(-4.5, 4.5, 901)
BLUE, ORANGE, GREY = (plots.METHODS[name].colour for name in ("n_sfs", "sgld", "exact"))
Drift = Callable[[jax.Array, jax.Array], jax.Array]


def log_posterior(x: jax.Array) -> jax.Array:
    logs = jax.scipy.stats.norm.logpdf(x, jnp.array([-1.3, 1.0]), jnp.array([0.35, 0.5]))
    return jax.nn.logsumexp(logs, b=jnp.array([0.35, 0.65]))


def log_reference(x: jax.Array) -> jax.Array:
    return jax.scipy.stats.norm.logpdf(x, 0.0, GAMMA**0.5)


def foellmer_drift(t: jax.Array, x: jax.Array) -> jax.Array:
    """γ∇ ln E f(x + √(1−t) z) with f the posterior over the reference, summed over a grid."""
    log_f = jax.vmap(log_posterior)(PLACES) - log_reference(PLACES)

    def log_mean(x: jax.Array) -> jax.Array:
        ahead = jax.scipy.stats.norm.logpdf(PLACES, x, jnp.sqrt(GAMMA * (1.0 - t)))
        return jax.nn.logsumexp(log_f + ahead)

    return GAMMA * jax.grad(lambda x: log_mean(x[0]))(x)


def half_learned(t: jax.Array, x: jax.Array) -> jax.Array:
    """A drift that training has not finished with."""
    return 0.6 * foellmer_drift(t, x) + 0.3


def simulated(drift: Drift, count: int, num_steps: int) -> tuple[Paths, np.ndarray]:
    """Paths of the drift and their log weights."""
    diffusion = Diffusion(1, GAMMA, grid_times(uniform, num_steps), jnp.float32)
    keys = jax.random.split(jax.random.key(2), count)
    paths = jax.vmap(lambda key: simulate(drift, diffusion, diffusion.noise(key)))(keys)
    ends = paths.end[:, 0]
    log_weights = jax.vmap(log_posterior)(ends) - log_reference(ends) + paths.log_ratio
    return paths, np.asarray(log_weights)


def draw_paths(
    axes: Axes,
    paths: Paths,
    log_density: Callable[[jax.Array], jax.Array],
    colours: tuple[str, str],
) -> None:
    """Paths by time, coloured by where they end, and the law of their ends at the right."""
    states = np.concatenate([np.asarray(paths.states)[:, :, 0], np.asarray(paths.end)], axis=1)
    times = np.linspace(0.0, 1.0, states.shape[1])
    for path in states:
        colour = colours[int(path[-1] > -0.35)]
        axes.plot(times, path, color=colour, linewidth=0.7, alpha=0.55)
    axes.plot(0.0, 0.0, "o", color=GREY, zorder=4)
    density = np.exp(np.asarray(jax.vmap(log_density)(PLACES)))
    axes.fill_betweenx(np.asarray(PLACES), 1.0, 1.0 + 0.45 * density, color=GREY, alpha=0.6)
    axes.set(xlabel="time t", xlim=(-0.03, 1.32), ylim=(-3.2, 3.2))
    axes.set_xticks([0, 0.5, 1])
    axes.grid(False)


def draw_weights(axes: Axes) -> None:
    """A poor drift's draws, and the same draws by their weights, beside the posterior."""
    paths, log_weights = simulated(half_learned, 20_000, 16)
    ends, weights = np.asarray(paths.end)[:, 0], np.exp(log_weights)
    edges = np.linspace(-3.2, 3.2, 65)
    plain, weighted = (
        np.histogram(ends, edges, weights=one, density=True)[0] for one in (None, weights)
    )
    axes.stairs(plain, edges, color=ORANGE, linewidth=1.5)
    axes.stairs(weighted, edges, color=BLUE, linewidth=1.5)
    axes.fill_between(
        np.asarray(PLACES), np.exp(jax.vmap(log_posterior)(PLACES)), color=GREY, alpha=0.4
    )
    axes.set(xlabel="θ at time 1", ylabel="density", xlim=(-3.2, 3.2), ylim=(0, 0.7))
    axes.text(-3.1, 0.62, "a poor drift's draws", color=ORANGE)
    axes.text(-3.1, 0.57, "the same, weighted", color=BLUE)
    axes.text(-3.1, 0.52, "the posterior", color=GREY)
    ess = weights.sum() ** 2 / (len(weights) * np.sum(weights**2))
    print(f"mean weight {weights.mean():.3f} (exactly 1), ESS {ess:.0%}")


def main() -> Figure:
    titles = [
        "1. Noise alone ends in N(0, γ)",
        "2. A drift steers it to the posterior",
        "3. Exact weights mend what is left",
    ]
    figure, (free, steered, weighed) = plots.panels(titles, columns=3)
    figure.set_size_inches(13.0, 3.9)
    draw_paths(
        free, simulated(lambda t, x: jnp.zeros_like(x), 36, 50)[0], log_reference, (GREY, GREY)
    )
    draw_paths(steered, simulated(foellmer_drift, 36, 50)[0], log_posterior, (ORANGE, BLUE))
    free.set(ylabel="state θ")
    draw_weights(weighed)
    return figure


if __name__ == "__main__":
    plots.save(main(), Path(__file__).with_name("method.svg"))
