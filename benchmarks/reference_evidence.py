"""ln Z of the targets whose truth is not known in closed form, by annealed sequential Monte Carlo.

    python -m benchmarks.reference_evidence [NAMES] [--seeds 8]

Particles go from a Gaussian to the target, through powers of their ratio, by HMC moves in the
Gaussian's coordinates. It is that of the mode's curvature, for the Cox process the one of least KL.
Nothing of `fit` is used: no flow, no survey, no population. Targets are put into
docs/results/bench/reference_evidence.json one by one, from which `follmer bench` has its truths.
"""

import argparse
import functools
import json
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from benchmarks.page import RECORDS
from follmer.bench.targets import CASES
from follmer.targets import AbstractTarget
from follmer.tools.keys import named_keys
from follmer.tools.tables import machine

NAMES = ("ionosphere", "german_credit", "breast_cancer", "cox_process")
# Particles and powers of a run: its error falls with the root of their product.
_SIZES = {"cox_process": (128, 100)}
_USUAL = (1024, 50)
_LEAPFROG, _ACCEPTED = 6, 0.8
_NEWTON_STEPS, _TOLERANCE = 100, 1e-3


class Gaussian(NamedTuple):
    """x = mean + factor·z with standard normal z."""

    mean: Float[Array, " dim"]
    factor: Float[Array, "dim dim"]

    def at(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return self.mean + self.factor @ z


def laplace(target: AbstractTarget) -> Gaussian:
    """The mode, by Newton's method from 0 with halved steps where it overshoots; its curvature."""

    def value(x: Float[Array, " dim"]) -> Float[Array, ""]:
        return target.log_density(x, target.data)

    value_of, slope, hessian = map(jax.jit, (value, jax.grad(value), jax.hessian(value)))
    x = np.zeros(target.dim)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(-np.asarray(hessian(x), float), np.asarray(slope(x), float))
        share = 1.0
        while not value_of(x + share * step) > value_of(x) and share > 1e-6:
            share /= 2.0
        x = x + share * step
        if np.abs(share * step).max() < 1e-3 * np.abs(x).max():
            break
    factor = np.linalg.cholesky(np.linalg.inv(-np.asarray(hessian(x), float)))
    return Gaussian(jnp.asarray(x), jnp.asarray(factor))


def closest_to_cox(target: AbstractTarget) -> Gaussian:
    """The Gaussian q of least KL(q‖p) of a Poisson likelihood e^x/dim with a Gaussian prior.

    Under q = N(m, S), v = diag S, exponentials have the mean e^(m + v/2): both stationarity
    conditions follow from the gradient and the curvature there (Opper & Archambeau 2009).
    """

    def value(x: Float[Array, " dim"]) -> Float[Array, ""]:
        return target.log_density(x, target.data)

    # Where all exponentials vanish, the curvature is the prior's.
    prior = -np.asarray(jax.jit(jax.hessian(value))(np.full(target.dim, -60.0)), float)
    slope = jax.jit(jax.grad(value))
    mean, variance = np.zeros(target.dim), np.ones(target.dim)
    for _ in range(_NEWTON_STEPS):
        above = mean + variance / 2.0
        covariance = np.linalg.inv(prior + np.diag(np.exp(above) / target.dim))
        step = covariance @ (np.asarray(slope(above), float) + prior @ (variance / 2.0))
        change = np.diag(covariance) - variance
        # At most 2 units at once: exponentials run away.
        mean = mean + step * min(1.0, 2.0 / np.abs(step).max())
        variance = variance + 0.7 * change
        if max(np.abs(step).max(), np.abs(change).max()) < _TOLERANCE:
            break
    return Gaussian(jnp.asarray(mean), jnp.asarray(np.linalg.cholesky(covariance)))


def log_ratio(target: AbstractTarget, start: Gaussian, z: Float[Array, " dim"]) -> Array:
    """ln of the target's density over that of the Gaussian, at its z."""
    constant = jnp.sum(jnp.log(jnp.diag(start.factor))) + 0.5 * len(z) * np.log(2.0 * np.pi)
    return target.log_density(start.at(z), target.data) + 0.5 * jnp.sum(z**2) + constant


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def evidence(
    target: AbstractTarget, start: Gaussian, num_particles: int, num_powers: int, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """An estimate of ln Z, unbiased for Z, and the mean acceptance of the moves."""
    ratio = functools.partial(log_ratio, target, start)
    keys = named_keys(key, "start", "powers")
    z = jax.random.normal(keys[0], (num_particles, len(start.mean)))

    def step(carry: tuple[Array, Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, Any]:
        z, ratios, length = carry
        power, key = inputs
        gains = ratios / num_powers
        resample_key, move_key = named_keys(key, "resample", "move")
        rows = _systematic(jax.nn.softmax(gains), resample_key)
        keys = jax.random.split(move_key, num_particles)
        move = functools.partial(_moved, ratio, power, length)
        z, ratios, accepted = jax.vmap(move)(z[rows], ratios[rows], keys)
        share = jnp.mean(accepted)
        length = length * jnp.exp(0.5 * (share - _ACCEPTED))
        return (z, ratios, length), (jax.nn.logsumexp(gains) - np.log(num_particles), share)

    powers = jnp.arange(1, num_powers + 1) / num_powers
    first = (z, jax.vmap(ratio)(z), jnp.asarray(0.3))
    inputs = (powers, jax.random.split(keys[1], num_powers))
    _, (gains, accepted) = jax.lax.scan(step, first, inputs)
    return jnp.sum(gains), jnp.mean(accepted)


def _moved(
    ratio: Any, power: Array, length: Array, z: Array, value: Array, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    """One HMC move at N(z|0, I)·exp(power·ratio)."""
    momentum_key, jitter_key, choice_key = named_keys(key, "momentum", "jitter", "choice")
    p = jax.random.normal(momentum_key, z.shape)
    length = length * jax.random.uniform(jitter_key, minval=0.6, maxval=1.4)

    def energy(z: Array, value: Array, p: Array) -> Array:
        return 0.5 * jnp.sum(z**2) - power * value + 0.5 * jnp.sum(p**2)

    def slope(z: Array) -> Array:
        return power * jax.grad(ratio)(z) - z

    def leap(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        z, p, force = state
        p = p + 0.5 * length * force
        z = z + length * p
        force = slope(z)
        return z, p + 0.5 * length * force, force

    end, q, _ = jax.lax.fori_loop(0, _LEAPFROG, leap, (z, p, slope(z)))
    new = ratio(end)
    accept = jnp.exp(jnp.minimum(energy(z, value, p) - energy(end, new, q), 0.0))
    taken = jax.random.uniform(choice_key) < accept
    return jnp.where(taken, end, z), jnp.where(taken, new, value), accept


def _systematic(weights: Float[Array, " n"], key: PRNGKeyArray) -> Array:
    places = (jnp.arange(len(weights)) + jax.random.uniform(key)) / len(weights)
    return jnp.minimum(jnp.searchsorted(jnp.cumsum(weights), places), len(weights) - 1)


def reference(name: str, num_seeds: int) -> dict[str, Any]:
    """The mean of ln Z over seeds and its standard error, with each seed's estimate."""
    target = CASES[name].build()
    num_particles, num_powers = _SIZES.get(name, _USUAL)
    began = time.perf_counter()
    start = closest_to_cox(target) if name == "cox_process" else laplace(target)
    found = [
        evidence(target, start, num_particles, num_powers, jax.random.key(seed))
        for seed in range(num_seeds)
    ]
    values, accepted = np.array(found, float).T
    return {
        "target": name,
        # Z's mean, not ln Z's: the estimates are unbiased for Z.
        "log_evidence": float(np.logaddexp.reduce(values) - np.log(num_seeds)),
        "log_evidence_se": float(values.std(ddof=1) / np.sqrt(num_seeds)),
        "estimates": values.tolist(),
        "particles": num_particles,
        "powers": num_powers,
        "acceptance": float(accepted.mean()),
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seeds", type=int, default=8)
    chosen = parser.parse_args()
    for name in chosen.names:
        found = reference(name, chosen.seeds)
        value, error = (found[what] for what in ("log_evidence", "log_evidence_se"))
        print(f"{name}: ln Z {value:.4f} ± {error:.4f}", flush=True)
        command = f"python -m benchmarks.reference_evidence {name} --seeds {chosen.seeds}"
        _keep({**found, "machine": machine(command)})


def _keep(found: dict[str, Any]) -> None:
    """Put one target's record in the place of an earlier one."""
    path = RECORDS / "reference_evidence.json"
    stored = json.loads(path.read_text())["results"] if path.exists() else []
    known = {one["target"]: one for one in [*stored, found]}
    results = [known[name] for name in NAMES if name in known]
    # The machine is that of the last run; each record has its own.
    content = {"machine": found["machine"], "results": results}
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
