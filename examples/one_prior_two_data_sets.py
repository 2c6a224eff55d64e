"""Two data sets from one prior process: the prior is learned once, each posterior steers away.

The prior of the two coefficients is Student's t, which has no process in closed form.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm, t
from matplotlib.figure import Figure

import follmer
from follmer import plots


def log_prior(weights: jax.Array) -> jax.Array:
    return jnp.sum(t.logpdf(weights, df=3.0))


def log_likelihood(weights: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    return norm.logpdf(batch["y"], batch["x"] @ weights)


def regression(key: jax.Array, truth: list[float], num_rows: int) -> follmer.Target:
    x_key, noise_key = jax.random.split(key)
    x = jax.random.normal(x_key, (num_rows, 2))
    y = x @ jnp.array(truth) + jax.random.normal(noise_key, (num_rows,))
    data, like = {"x": x, "y": y}, jnp.zeros(2)
    return follmer.Target(log_prior=log_prior, log_likelihood=log_likelihood, data=data, like=like)


def main() -> Figure:
    few_key, many_key, prior_key, fit_key, draw_key = jax.random.split(jax.random.key(0), 5)
    few = regression(few_key, [1.0, -0.5], num_rows=5)
    many = regression(many_key, [-0.5, 1.5], num_rows=40)
    process = follmer.prior_process(few, key=prior_key)
    found = {"the prior": process}
    for name, target in (("5 rows", few), ("40 rows", many)):
        found[name] = follmer.fit(target, reference=process, key=fit_key, num_iterations=300)
    figure, panels = plots.panels(list(found), columns=3)
    axis = np.linspace(-4, 4, 120)
    grid = jnp.stack(jnp.meshgrid(axis, axis), -1)
    for axes, (name, posterior) in zip(panels, found.items(), strict=True):
        told = posterior.diagnostics(key=draw_key)
        error = told.log_evidence_se
        print(f"{name:<10} ESS {told.ess_fraction:.0%}, ln Z {told.log_evidence:.3f} ± {error:.3f}")
        draws = np.asarray(posterior.sample(600, key=draw_key))
        values = np.asarray(jax.vmap(jax.vmap(posterior.target.log_density))(grid))
        plots.scatter_over_contours(axes, draws, axis, axis, values)
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("one_prior_two_data_sets.svg"))
