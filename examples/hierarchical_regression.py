"""Varying intercepts, as for radon in houses by county, against the no-U-turn sampler.

A county is one data point: its houses' radon and floors, and its soil's uranium. How far its
intercept is from what the uranium predicts is its local variable; the rest is global.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from matplotlib.figure import Figure
from numpyro.distributions import constraints

import follmer
from follmer import plots


def simulated(num_counties: int, key: jax.Array) -> dict[str, jax.Array]:
    """Counties of 1 to 30 houses, most of them small; `mask` tells houses from padding."""
    keys = jax.random.split(key, 5)
    sizes = jnp.clip(jnp.round(jnp.exp(1.5 + jax.random.normal(keys[0], (num_counties,)))), 1, 30)
    mask = jnp.arange(30) < sizes[:, None]
    floor = jax.random.bernoulli(keys[1], 0.2, mask.shape).astype(float)
    uranium = 0.4 * jax.random.normal(keys[2], (num_counties,))
    intercept = 1.5 + 0.7 * uranium + 0.3 * jax.random.normal(keys[3], (num_counties,))
    noise = 0.75 * jax.random.normal(keys[4], mask.shape)
    radon = intercept[:, None] - 0.6 * floor + noise
    return {
        "radon": jnp.where(mask, radon, 0.0),
        "floor": jnp.where(mask, floor, 0.0),
        "mask": mask.astype(float),
        "uranium": uranium,
    }


def model(counties: dict[str, jax.Array]) -> follmer.StructuredTarget:
    def log_prior_global(phi: Any) -> jax.Array:
        slopes = norm.logpdf(phi["level"], 0, 5) + norm.logpdf(phi["uranium"], 0, 2)
        spreads = norm.logpdf(phi["noise"]) + norm.logpdf(phi["spread"])
        return slopes + norm.logpdf(phi["floor"], 0, 2) + spreads

    def log_likelihood(deviation: jax.Array, phi: Any, county: Any) -> jax.Array:
        intercept = phi["level"] + phi["uranium"] * county["uranium"] + deviation
        mean = intercept + phi["floor"] * county["floor"]
        return jnp.sum(county["mask"] * norm.logpdf(county["radon"], mean, phi["noise"]))

    return follmer.StructuredTarget(
        log_prior_global=log_prior_global,
        log_prior_local=lambda deviation, phi: norm.logpdf(deviation, 0.0, phi["spread"]),
        log_likelihood=log_likelihood,
        data=counties,
        like_global=dict.fromkeys(("level", "uranium", "floor", "noise", "spread"), 1.0),
        like_local=jnp.zeros(()),
        constraints={"global": {"noise": constraints.positive, "spread": constraints.positive}},
    )


def differences(
    posterior: follmer.Posterior, chains: follmer.Posterior, num_draws: int, key: jax.Array
) -> dict[str, tuple[float, float, float]]:
    """Of every global: NUTS's mean and sd, and how many sds the weighted mean is off."""
    means = posterior.expectation(lambda draw: draw["global"], key=key, num_samples=num_draws)
    truth = chains.sample(num_draws, key=key)["global"]
    rows = {name: (float(np.mean(truth[name])), float(np.std(truth[name]))) for name in truth}
    return {name: (*row, (float(means[name]) - row[0]) / row[1]) for name, row in rows.items()}


def drawn(posterior: follmer.Posterior, chains: follmer.Posterior, key: jax.Array) -> Figure:
    """Every county's deviation with a 90 % interval, by both samplers, in the order of NUTS's."""
    figure, (axes,) = plots.panels(["Counties: what uranium does not explain, by N-SFS and NUTS"])
    draws = {"nuts": chains.sample(2000, key=key), "n_sfs": posterior.resample(2000, key=key)}
    found = {name: np.asarray(one["local"]) for name, one in draws.items()}
    order = np.argsort(np.median(found["nuts"], axis=0))
    for shift, (name, local) in zip((0.2, -0.2), found.items(), strict=True):
        low, middle, high = np.quantile(local[:, order], [0.05, 0.5, 0.95], axis=0)
        label, colour = plots.METHODS[name]
        places, bars = np.arange(len(order)) + shift, [middle - low, high - middle]
        look = {"color": colour, "label": label, "markersize": 2.5, "linewidth": 0.8}
        axes.errorbar(places, middle, yerr=bars, fmt="o", **look)
    axes.set(xlabel="county, by its deviation", ylabel="deviation, with 90 % intervals")
    axes.legend(loc="upper left", labelcolor="linecolor", frameon=False)
    return figure


def main() -> Figure:
    data_key, fit_key, chain_key, draw_key = jax.random.split(jax.random.key(0), 4)
    target = model(simulated(60, data_key))
    posterior = follmer.fit(target, key=fit_key)
    summary = posterior.summary(key=jax.random.key(1))
    print(summary[summary.index("ELBO") :], end="\n\n")
    chains = follmer.nuts(target.joint(), key=chain_key, num_samples=2000)
    agreement = chains.diagnostics(key=chain_key)
    print(f"NUTS on the joint density: R-hat {agreement.rhat:.3f}; its means beside ours")
    for name, row in differences(posterior, chains, 8000, draw_key).items():
        print("{:<8} {:>7.3f} ± {:.3f}, ours off by {:+.3f} sd".format(name, *row))
    return drawn(posterior, chains, draw_key)


if __name__ == "__main__":
    plots.save(main(), Path("hierarchical_regression.svg"))
