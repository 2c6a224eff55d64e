"""How sure averages of an image's networks are, and which power would make them calibrated.

    python -m benchmarks.image_calibration [cifar10|mnist] [--scales 1 2 4] [--chains]

Descents of the library's schedule, under prior sd 1 and under fan-in priors of each scale, judged
by training rows that are left out; with --chains, chains from their ends too, and flows along these
of each form. For each, the power of the averaged class probabilities under which the rows left out
are the most likely, and the power that training rows would choose: by PSIS-LOO where there are
draws enough. No test row is looked at.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from benchmarks.image_chains import AT_ONCE, LEFT_OUT, NETWORKS, log_probabilities, split
from follmer import Target, from_network, metrics, priors
from follmer.judging.calibration import power_of, powered
from follmer.judging.predictions import psis_loo
from follmer.mcmc.ensembles import point_estimates, run_ensemble
from follmer.plans.ensemble import schedule_for
from follmer.plans.fresh_draws import _FORMS, flow_floor
from follmer.posterior.along_chains import along_chains
from follmer.tools.keys import named_key
from follmer.tools.tables import commit

# Training rows that are asked for a power.
TRAINING = 1000
# Draws that are averaged: as many as the images' rows have.
DRAWS = 100


def under_fan_in(target: Target, name: str, scale: float) -> Target:
    """The same data under a prior whose widths shrink with the number of inputs."""
    return from_network(
        NETWORKS[name][1](jax.random.key(0), False),
        data=(target.data["x"], target.data["y"]),
        likelihood="categorical",
        prior=priors.FanIn("out_in", scale),
    )


def logs_of(target: Target, draws: np.ndarray, x: np.ndarray) -> Float[np.ndarray, "d rows k"]:
    places = jnp.asarray(draws)
    parts = [
        log_probabilities(target, places, jnp.asarray(x[at : at + AT_ONCE]))
        for at in range(0, len(x), AT_ONCE)
    ]
    return np.concatenate([np.asarray(part, float) for part in parts], axis=1)


def averaged(logs: Float[np.ndarray, "d rows k"]) -> Float[np.ndarray, "rows k"]:
    return np.asarray(powered(np.exp(logs).mean(axis=0), 1.0))


def left_out(logs: Float[np.ndarray, "d rows k"], y: np.ndarray) -> Float[np.ndarray, "rows k"]:
    """Class probabilities of training rows, each left out by PSIS."""
    likelihood = logs[:, np.arange(len(y)), y]
    parts = [psis_loo(likelihood, cdf=np.exp(logs[:, :, k])).levels for k in range(logs.shape[2])]
    return np.asarray(powered(np.stack(parts, axis=1), 1.0))


def told(
    name: str, target: Target, draws: np.ndarray, x: np.ndarray, y: np.ndarray, *, few: bool
) -> None:
    """Prints one row: the draws' average on the rows left out, and powers."""
    logs, rows = logs_of(target, draws, x), np.arange(len(y))
    average = averaged(logs)
    power = power_of(average, y)
    sharp = np.asarray(powered(average, power))
    seen = logs_of(target, draws, np.asarray(target.data["x"][:TRAINING]))
    labels = np.asarray(target.data["y"][:TRAINING])
    by_training = power_of(averaged(seen) if few else left_out(seen, labels), labels)
    found = (
        metrics.accuracy(average, y),
        metrics.expected_calibration_error(average, y),
        float(logs[:, rows, y].mean()),
        float(np.log(average[rows, y]).mean()),
        power,
        metrics.expected_calibration_error(sharp, y),
        float(np.log(sharp[rows, y]).mean()),
        by_training,
    )
    print(f"{name:>18} " + " ".join(f"{number:8.4f}" for number in found), flush=True)


def told_of_chains(
    target: Target, chains: np.ndarray, key: jax.Array, x: np.ndarray, y: np.ndarray
) -> None:
    """Rows of the chains' states, and of flows along them of each form."""
    chosen = np.linspace(0, chains.shape[1] - 1, -(-DRAWS // len(chains))).astype(int)
    told("ensemble", target, chains[:, chosen].reshape(-1, target.dim), x, y, few=False)
    floor = flow_floor(target, chains)
    for size, width in _FORMS:
        flow = along_chains(target, chains, size, width, floor)
        draws, _ = flow.sample(DRAWS, named_key(key, "draws"), None, progress=False)
        told(f"flow, {size} × {width}", target, np.asarray(draws), x, y, few=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(NETWORKS), default="cifar10")
    parser.add_argument("--scales", type=float, nargs="*", default=[])
    parser.add_argument("--chains", action="store_true")
    options = parser.parse_args()
    target, x, y = split(options.name)
    schedule, key = schedule_for(target), jax.random.key(1)
    print(f"commit {commit()}: {options.name}, {LEFT_OUT} training rows left out")
    print(f"{'':>18} accuracy      ECE    Gibbs      LPD    power      ECE      LPD  by training")
    points = point_estimates(target, schedule, key)[0]
    told("points", target, np.asarray(points), x, y, few=True)
    for scale in options.scales:
        other = under_fan_in(target, options.name, scale)
        found = point_estimates(other, schedule, key)[0]
        told(f"points, fan-in {scale:g}", other, np.asarray(found), x, y, few=True)
    if options.chains:
        chains = run_ensemble(target, schedule, key, points=points, progress=False).draws
        told_of_chains(target, chains, key, x, y)


if __name__ == "__main__":
    main()
