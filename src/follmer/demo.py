"""`follmer demo`: two posteriors in under two minutes, with their diagnostics and a picture."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer import plots
from follmer.errors import FileError
from follmer.fitting.fit import fit
from follmer.posterior.posterior import Posterior
from follmer.targets import Target, as_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def banana() -> Target:
    """A correlated banana: x_0 ~ N(0, 1), x_1 | x_0 ~ N(x_0²/2 + x_0/2 − 1, 0.5²); ln Z = 0."""

    def log_density(x: Float[Array, " 2"]) -> Float[Array, ""]:
        bend = x[0] ** 2 / 2 + x[0] / 2 - 1
        return _log_normal(x[0], 0.0, 1.0) + _log_normal(x[1], bend, 0.5)

    return Target(log_density, like=jnp.zeros(2))


def regression(key: Array) -> Target:
    """y = intercept + slope·x + noise, all three unknown, 50 points."""
    from numpyro.distributions import constraints

    x_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(x_key, (50,), minval=-2, maxval=2)
    y = 0.5 - 1.2 * x + 0.6 * jax.random.normal(noise_key, (50,))

    def log_prior(theta: PyTree) -> Float[Array, ""]:
        sigma = _log_normal(theta["sigma"], 0.0, 1.0) + jnp.log(2.0)
        return (
            _log_normal(theta["intercept"], 0.0, 1.0)
            + _log_normal(theta["slope"], 0.0, 1.0)
            + sigma
        )

    def log_likelihood(theta: PyTree, batch: PyTree) -> Float[Array, " batch"]:
        mean = theta["intercept"] + theta["slope"] * batch["x"]
        return _log_normal(batch["y"], mean, theta["sigma"])

    return Target(
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        data={"x": x, "y": y},
        like={"intercept": 0.0, "slope": 0.0, "sigma": 1.0},
        constraints={"sigma": constraints.positive},
    )


def run(out: Path, seed: int) -> Path:
    """Fit both, print both summaries, write the picture; returns its path."""
    figure, axes = plots.figure(1, 2)
    _check_picture(out, figure.canvas.get_supported_filetypes())
    data_key, *keys = jax.random.split(jax.random.key(seed), 5)
    print("A banana-shaped density (true ln Z = 0)")
    posterior = _fit_and_tell(banana(), keys[0], keys[1])
    _draw_banana(axes[0, 0], posterior, keys[1])
    print("\nA Bayesian regression: y = intercept + slope·x + noise")
    posterior = _fit_and_tell(regression(data_key), keys[2], keys[3])
    _draw_regression(axes[0, 1], posterior, keys[3])
    return plots.save(figure, out)


def _check_picture(out: Path, kinds: Iterable[str]) -> None:
    """Before training, not after it."""
    if not out.parent.is_dir():
        raise FileError(f"there is no folder {out.parent} to write {out.name} into.")
    if out.is_dir():
        raise FileError(f"{out} is a folder, not a file to write.", hint=f"--out {out}/demo.png")
    if out.suffix.lstrip(".") not in kinds:
        raise FileError(
            f"pictures cannot be written as {out.suffix or 'a file without a suffix'}.",
            hint="one of: " + ", ".join(kinds),
        )


def _fit_and_tell(target: Target, fit_key: Array, summary_key: Array) -> Posterior:
    posterior = fit(target, key=fit_key)
    print(posterior.summary(key=summary_key))
    return posterior


def _draw_banana(axes: "Axes", posterior: Posterior, key: Array) -> None:
    draws = posterior.resample(1000, key=key)
    corners = ((-3.5, 3.5), (-3.0, 6.5))
    _draw(axes, as_target(posterior.target), draws, lambda point: point, corners)
    axes.set(title="Banana: draws over the density's contours")


def _draw_regression(axes: "Axes", posterior: Posterior, key: Array) -> None:
    """The posterior of (intercept, slope), with the noise level at its mean."""
    draws = posterior.resample(1000, key=key)
    sigma = jnp.mean(draws["sigma"])

    def theta(point: Float[Array, " 2"]) -> PyTree:
        return {"intercept": point[0], "slope": point[1], "sigma": sigma}

    pairs = np.stack([draws["intercept"], draws["slope"]], -1)
    mean, sd = pairs.mean(axis=0), pairs.std(axis=0)
    corners = tuple(zip(mean - 4 * sd, mean + 4 * sd, strict=True))
    _draw(axes, as_target(posterior.target), pairs, theta, corners)
    axes.set(title="Regression: draws of intercept and slope", xlabel="intercept", ylabel="slope")


def _draw(
    axes: "Axes",
    target: Target,
    draws: Float[np.ndarray, "draws 2"],
    theta: Callable[[Array], PyTree],
    corners: tuple[tuple[float, float], ...],
) -> None:
    """Draws over contours of the density at the parameters that `theta` makes of two numbers."""

    def log_density(point: Float[Array, " 2"]) -> Float[Array, ""]:
        # Constrained parameters are not the target's own coordinates.
        return target.log_density(target.unconstrain(theta(point)))

    first, second = (np.linspace(low, high, 150) for low, high in corners)
    grid = jnp.stack(jnp.meshgrid(first, second), -1)
    values = np.asarray(jax.jit(jax.vmap(jax.vmap(log_density)))(grid))
    plots.scatter_over_contours(axes, draws, first, second, values)


def _log_normal(x: Array, mean: Array | float, sd: Array | float) -> Array:
    return jax.scipy.stats.norm.logpdf(x, mean, sd)
