"""How cost grows, what long paths take of memory, and how fast draws come.

    python -m benchmarks.scaling [--parts exponents memory draws nuts]

`exponents`: seconds of a training step against dimensions, steps, paths and rows of a batch, as the
slope of a line through their logarithms; 1 is linear. `memory`: what the compiler sets aside for a
step of 400 Euler–Maruyama steps against one of 20. `draws`: a million draws of a 10-d posterior.
`nuts`: draws of a trained posterior of a9a against NUTS, in seconds for an effective draw.
"""

import argparse
import resource
import time

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np

import follmer
from benchmarks.step import TARGETS, iterations, seconds
from follmer.bench.targets import CASES

KEY = jax.random.key(0)
# A step's size where one of its parts is varied, and the sizes of that part.
BASE = {"dim": 512, "steps": 20, "paths": 32, "batch": 64}
SIZES = {
    "dim": (2048, 4096, 8192, 16384),
    "steps": (20, 40, 80, 160),
    "paths": (64, 128, 256, 512),
    "batch": (4096, 8192, 16384, 32768),
}
NUM_DRAWS = 1_000_000
EFFECTIVE_DRAWS = 10_000


def regression(dim: int, rows: int) -> follmer.Target:
    """A logistic regression on random rows."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((rows, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    labels = np.where(rng.random(rows) < 0.5, 1.0, -1.0).astype("float32")
    return follmer.Target(
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2),
        log_likelihood=lambda theta, batch: jax.nn.log_sigmoid(batch[1] * (batch[0] @ theta)),
        data=(inputs, labels),
        like=jnp.zeros(dim),
    )


def step_seconds(dim: int, steps: int, paths: int, batch: int) -> float:
    """Seconds of some training steps on so many rows."""
    target = regression(dim, batch)
    found = follmer.NSFS(target, drift="mlp", num_steps=steps, num_paths=paths, grid="uniform")
    state = found.init(KEY)
    return seconds(lambda s, k, data: iterations(found, s, k, data), state, KEY, target.data)[1]


def exponents() -> None:
    print(f"{'grows':>6} {'sizes':>28} {'ms for four iterations':>32} {'exponent':>9}")
    for part, sizes in SIZES.items():
        times = [step_seconds(**{**BASE, part: size}) for size in sizes]
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        told = " ".join(f"{1e3 * one:.1f}" for one in times)
        print(f"{part:>6} {' '.join(map(str, sizes)):>28} {told:>32} {slope:>9.2f}", flush=True)


def memory() -> None:
    """What the compiled step needs beside its arguments, for the paper's drift of width 300."""
    needed = {}
    for steps in (20, 400):
        target = TARGETS[10401]()
        found = follmer.NSFS(
            target,
            drift="batch_norm_mlp",
            drift_options={"width": 300},
            num_steps=steps,
            num_paths=32,
            step_rule="euler_maruyama",
        )
        state = found.init(KEY)
        lowered = jax.jit(lambda s, k, found=found: found.step(s, k)[0]).lower(state, KEY)
        analysis = lowered.compile().memory_analysis()
        assert analysis is not None
        needed[steps] = analysis.temp_size_in_bytes
    told = ", ".join(f"{size / 2**20:.0f} MiB for {steps} steps" for steps, size in needed.items())
    print(
        f"memory of a training step, 10401 dimensions: {told}; ratio {needed[400] / needed[20]:.1f}"
    )


def elapsed(posterior: follmer.Posterior, count: int) -> float:
    """Seconds of so many draws."""
    began = time.perf_counter()
    jax.block_until_ready(posterior.sample(count, key=KEY))
    return time.perf_counter() - began


def bananas() -> follmer.Target:
    norm = jax.scipy.stats.norm.logpdf
    return follmer.Target(
        lambda x: jnp.sum(norm(x[:5]) + norm(x[5:], x[:5] ** 2, 0.5)), like=jnp.zeros(10)
    )


def draws() -> None:
    for name, target in (("logistic regression", regression(10, 200)), ("bananas", bananas())):
        posterior = follmer.fit(target, key=KEY, progress=False)
        posterior.sample(NUM_DRAWS // 10, key=KEY)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken = elapsed(posterior, NUM_DRAWS)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
        print(
            f"{NUM_DRAWS} draws of 10-d {name} ({posterior.plan[-1].rung}): {taken:.2f} s, "
            f"{NUM_DRAWS / taken:.0f} a second; peak memory grew by {grown:.0f} MiB, "
            f"the draws themselves are {NUM_DRAWS * 40 / 2**20:.0f}",
            flush=True,
        )


def nuts() -> None:
    target = CASES["a9a"].build()
    posterior = follmer.fit(target, key=KEY, progress=False)
    ess = posterior.diagnostics(key=KEY).ess_fraction
    posterior.sample(EFFECTIVE_DRAWS, key=KEY)
    ours = elapsed(posterior, EFFECTIVE_DRAWS) / (ess * EFFECTIVE_DRAWS)
    (short, _), (long, effective) = nuts_run(target, 100), nuts_run(target, 300)
    whole, steady = long / effective, (long - short) * 300 / 200 / effective
    print(f"a9a, seconds for an effective draw: ours {ours:.2e} (ESS {ess:.0%}, training apart)")
    print(f"NUTS {whole:.2e}, {whole / ours:.0f} times ours; warm-up and compilation included")
    print(f"NUTS {steady:.2e}, {steady / ours:.0f} times ours; its sampling alone")


def nuts_run(target: follmer.Target, num_samples: int) -> tuple[float, float]:
    """Seconds, and the least effective sample size of a coordinate."""
    began = time.perf_counter()
    found = follmer.nuts(
        target, key=KEY, num_chains=2, num_warmup=200, num_samples=num_samples, progress=False
    )
    taken = time.perf_counter() - began
    draws = found.to_datatree(key=KEY)["posterior"]
    return taken, min(float(np.min(ess)) for ess in arviz_stats.ess(draws).data_vars.values())


PARTS = {"exponents": exponents, "memory": memory, "draws": draws, "nuts": nuts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    for part in parser.parse_args().parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
