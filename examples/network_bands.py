"""A small network that knows where it has seen no data: its intervals widen in the gap."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import follmer
from follmer import plots

NOISE = 0.15


def truth(x: jax.Array) -> jax.Array:
    return jnp.sin(2.0 * x)


def main() -> Figure:
    x_key, noise_key, net_key, fit_key, predict_key = jax.random.split(jax.random.key(0), 5)
    # No data between −0.7 and 0.7.
    x = jax.random.uniform(x_key, (40, 1), minval=0.7, maxval=2.0)
    x = jnp.where(jnp.arange(40)[:, None] < 20, -x, x)
    y = truth(x[:, 0]) + NOISE * jax.random.normal(noise_key, (40,))
    net = eqx.nn.MLP(1, 1, width_size=8, depth=2, activation=jnp.tanh, key=net_key)
    target = follmer.from_network(net, data=(x, y), likelihood=follmer.likelihoods.Normal(sd=NOISE))
    posterior = follmer.fit(target, key=fit_key)
    print(posterior.summary(key=predict_key))
    places = jnp.linspace(-3, 3, 121)
    found = posterior.predict(places[:, None], key=predict_key)
    low, _, high = np.asarray(found.quantiles)
    middle = np.abs(np.asarray(places)) < 0.1
    inside = np.abs(np.abs(np.asarray(places)) - 1.35) < 0.1
    print(f"90 % interval among the data: {np.mean((high - low)[inside]):.2f} wide", end=", ")
    print(f"in the gap: {np.mean((high - low)[middle]):.2f}")
    figure, (axes,) = plots.panels(["A network's 90 % interval, noise included"])
    plots.predictive_band(
        axes,
        np.asarray(places),
        np.asarray(found.mean),
        low,
        high,
        points=(np.asarray(x[:, 0]), np.asarray(y)),
        truth=np.asarray(truth(places)),
    )
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("network_bands.svg"))
