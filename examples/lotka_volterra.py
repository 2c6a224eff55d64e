"""Hares and lynxes: the four rates of a differential equation from twenty noisy counts."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from matplotlib.figure import Figure

import follmer
from follmer import plots

RATES = jnp.array([0.55, 0.028, 0.80, 0.024])
FIRST = jnp.array([30.0, 5.0])
NOISE = 0.25
NUM_YEARS, STEPS_PER_YEAR = 20, 10


def populations(rates: jax.Array) -> jax.Array:
    """Both counts at the end of every step, by the fourth-order Runge–Kutta method."""
    birth, eaten, death, fed = rates
    dt = 1.0 / STEPS_PER_YEAR

    def slope(logs: jax.Array) -> jax.Array:
        hares, lynxes = jnp.exp(logs)
        return jnp.stack([birth - eaten * lynxes, fed * hares - death])

    def step(logs: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        one = slope(logs)
        two = slope(logs + 0.5 * dt * one)
        three = slope(logs + 0.5 * dt * two)
        four = slope(logs + dt * three)
        # Rates far from the truth overshoot: a bound keeps the density finite there.
        logs = jnp.clip(logs + dt / 6.0 * (one + 2 * two + 2 * three + four), -20.0, 20.0)
        return logs, logs

    return jax.lax.scan(step, jnp.log(FIRST), None, length=NUM_YEARS * STEPS_PER_YEAR)[1]


def main() -> Figure:
    data_key, fit_key, draw_key = jax.random.split(jax.random.key(0), 3)
    exact = populations(RATES)[STEPS_PER_YEAR - 1 :: STEPS_PER_YEAR]
    seen = exact + NOISE * jax.random.normal(data_key, exact.shape)

    def log_density(logs: jax.Array) -> jax.Array:
        """Of the rates' logarithms, given the logarithms of the counts."""
        yearly = populations(jnp.exp(logs))[STEPS_PER_YEAR - 1 :: STEPS_PER_YEAR]
        prior = jnp.sum(norm.logpdf(logs, jnp.log(RATES), 0.5))
        return prior + jnp.sum(norm.logpdf(seen, yearly, NOISE))

    posterior = follmer.fit(follmer.Target(log_density, like=jnp.zeros(4)), key=fit_key)
    print(posterior.summary(key=draw_key))
    curves = jnp.exp(jax.vmap(populations)(jnp.exp(posterior.resample(500, key=draw_key))))
    low, middle, high = np.quantile(np.asarray(curves), [0.05, 0.5, 0.95], axis=0)
    years = np.arange(1, len(middle) + 1) / STEPS_PER_YEAR
    figure, panels = plots.panels(["Hares", "Lynxes"])
    for i, axes in enumerate(panels):
        points = (np.arange(1.0, NUM_YEARS + 1), np.exp(np.asarray(seen[:, i])))
        plots.predictive_band(
            axes, years, middle[:, i], low[:, i], high[:, i], points=points, band="90 % of curves"
        )
        axes.set(xlabel="year", ylabel="thousands")
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("lotka_volterra.svg"))
