"""What chains by batches lose on CIFAR10, and to what: judged by training rows that are left out.

    python -m benchmarks.image_chains [--members 4] [--descents 5000 9000] [--steps 1500]

Descents of each length; from the first length's ends, chains at fixed rates, with the noise of
temperature 1 and with that of the batches alone. No test row is looked at.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from follmer import Target, from_network, metrics, priors
from follmer.mcmc import stochastic
from follmer.mcmc.ensembles import point_estimates
from follmer.paper.experiments.images import digits, photographs
from follmer.paper.experiments.lenet import digits_network, photographs_network
from follmer.plans.ensemble import schedule_for
from follmer.tools.keys import key_rows
from follmer.tools.programs import compiled
from follmer.tools.tables import commit

NETWORKS = {"mnist": (digits, digits_network), "cifar10": (photographs, photographs_network)}
# Training rows that are left out, and those of them that are predicted at once.
LEFT_OUT, AT_ONCE = 5000, 500
# Rates of chains, over the number of rows; the friction is that of the library's chains.
RATES, FRICTION = (3e-3, 7e-4), 0.05
# States of each chain by which it is judged: those of its later half.
STATES = 8


def split(name: str) -> tuple[Target, np.ndarray, np.ndarray]:
    """The posterior of most training rows, and the others."""
    load, network = NETWORKS[name]
    data = load(False).target.data
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    rows = np.random.default_rng(7).permutation(len(y))
    out, kept = rows[:LEFT_OUT], rows[LEFT_OUT:]
    target = from_network(
        network(jax.random.key(0), False),
        data=(x[kept], y[kept]),
        likelihood="categorical",
        prior=priors.Normal(1.0),
    )
    return target, x[out], y[out]


@compiled
def log_probabilities(target: Target, draws: jax.Array, x: jax.Array) -> jax.Array:
    def one(place: jax.Array) -> jax.Array:
        assert target.predictive is not None
        return jax.nn.log_softmax(target.predictive.outputs(target.parameters(place), x))

    return jax.lax.map(one, draws, batch_size=STATES)


def told(name: str, target: Target, draws: jax.Array, x: np.ndarray, y: np.ndarray) -> None:
    """Prints one row: how the draws' average predicts the rows that are left out."""
    starts = range(0, len(x), AT_ONCE)
    parts = [log_probabilities(target, draws, jnp.asarray(x[at : at + AT_ONCE])) for at in starts]
    logs = np.concatenate([np.asarray(part, float) for part in parts], axis=1)
    average = np.exp(logs).mean(axis=0)
    average /= average.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    found = (
        metrics.accuracy(average, y),
        metrics.expected_calibration_error(average, y),
        float(logs[:, rows, y].mean()),
        float(np.log(average[rows, y]).mean()),
    )
    print(f"{name:>44} " + " ".join(f"{number:8.4f}" for number in found), flush=True)


def chains(
    target: Target, points: jax.Array, rate: float, temperature: float, steps: int, batch: int
) -> jax.Array:
    """States of the later half of chains at one rate."""
    _, places = stochastic.advance(
        target,
        stochastic.as_walkers(points),
        jax.random.key(2),
        jnp.asarray(0, jnp.int32),
        jnp.full(len(points), rate, points.dtype),
        friction=FRICTION,
        temperature=temperature,
        batch_size=batch,
        num_kept=2 * STATES,
        thinning=steps // (2 * STATES),
    )
    return places[:, STATES:].reshape(-1, points.shape[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--descents", type=int, nargs="+", default=[5000, 9000])
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    target, x, y = split("cifar10")
    usual = schedule_for(target)._replace(num_members=options.members)
    batch = usual.batch_size
    assert batch is not None
    print(f"commit {commit()}: {options.members} members, {LEFT_OUT} training rows left out")
    print(f"{'':>44} accuracy      ECE    Gibbs      LPD", flush=True)
    for count in options.descents:
        schedule = usual._replace(num_descent_steps=count)
        points = point_estimates(target, schedule, jax.random.key(1))[0]
        told(f"points, {count} steps", target, points, x, y)
        if count != options.descents[0]:
            continue
        keys = key_rows(jax.random.key(3), 16)
        variance = float(stochastic.batch_variance(target, points, keys, batch).mean())
        for rate in (one / len(target.data["y"]) for one in RATES):
            heat = rate * variance / (2.0 * FRICTION)
            for temperature in (0.0, 1.0):
                found = chains(target, points, rate, temperature, options.steps, batch)
                name = f"chains, temperature {temperature:.0f}, batches add {heat:.3f}"
                told(name, target, found, x, y)


if __name__ == "__main__":
    main()
