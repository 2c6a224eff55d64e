"""Eight schools, a NumPyro model: how far does coaching help, and how alike are the schools?

The schools' own estimates (bars) are drawn towards their common mean, the more so the less the
schools seem to differ.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.figure import Figure

import follmer
from follmer import plots

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def model(effects: jax.Array) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(ERRORS)):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mean + spread * unit)
        numpyro.sample("effects", dist.Normal(theta, ERRORS), obs=effects)


def main() -> Figure:
    fit_key, draw_key = jax.random.split(jax.random.key(0))
    posterior = follmer.fit(follmer.from_numpyro(model, EFFECTS), key=fit_key)
    print(posterior.summary(key=draw_key))
    draws = np.asarray(posterior.resample(4000, key=draw_key)["theta"])
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    figure, (axes,) = plots.panels(["Measured effects (grey) and what is left of them (blue)"])
    schools = np.arange(len(ERRORS))
    measured = {"color": plots.METHODS["exact"].colour, "capsize": 2.5}
    axes.errorbar(schools - 0.12, EFFECTS, yerr=1.645 * ERRORS, fmt="s", **measured)
    found = {"color": plots.METHODS["n_sfs"].colour, "capsize": 2.5}
    axes.errorbar(schools + 0.12, middle, yerr=[middle - low, high - middle], fmt="o", **found)
    axes.set(xlabel="school", ylabel="points gained, with 90 % intervals")
    axes.set_xticks(schools, list("ABCDEFGH"))
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("eight_schools.svg"))
