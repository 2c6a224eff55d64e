"""Does a curve in the log odds pay for itself? Two logistic regressions and their Bayes factor.

The evidence ln Z weighs fit against the width of the prior; leave-one-out asks how well each model
predicts an observation that it has not seen.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import follmer
from follmer import plots


def simulated(key: jax.Array, num_rows: int = 200) -> dict[str, jax.Array]:
    """Labels whose log odds bend: 0.3 + 1.2 x − 0.5 x²."""
    x_key, label_key = jax.random.split(key)
    x = jax.random.normal(x_key, (num_rows,))
    odds = 0.3 + 1.2 * x - 0.5 * x**2
    return {"x": x, "y": jax.random.bernoulli(label_key, jax.nn.sigmoid(odds)).astype(float)}


def regression(data: dict[str, jax.Array], degree: int) -> follmer.Target:
    def log_likelihood(weights: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
        odds = jnp.polyval(weights, batch["x"])
        return -jax.nn.softplus((1 - 2 * batch["y"]) * odds)

    return follmer.Target(
        log_prior=follmer.priors.Normal(sd=1.0),
        log_likelihood=log_likelihood,
        data=data,
        like=jnp.zeros(degree + 1),
    )


def main() -> Figure:
    data_key, fit_key, judge_key = jax.random.split(jax.random.key(0), 3)
    data = simulated(data_key)
    names = {"flat": 0, "line": 1, "curve": 2, "cubic": 3}
    posteriors = [follmer.fit(regression(data, one), key=fit_key) for one in names.values()]
    compared = follmer.compare(posteriors, names=list(names), key=judge_key)
    print(compared)
    figure, axes = plots.panels(["Evidence", "Leave-one-out"])
    plots.comparison(axes, compared)
    return figure


if __name__ == "__main__":
    plots.save(main(), Path("logistic_bayes_factor.svg"))
