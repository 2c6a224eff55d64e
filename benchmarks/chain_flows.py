"""The flow along a network's chains beside the chains' own states, on the sets of UCI.

    python -m benchmarks.chain_flows [SETS] [--split 5]

One default fit for each set. Prints the log predictive density of test rows, in y's units, by draws
of the flow and by the states of the chains that it was laid along, and the seconds of 1000 draws,
once the first has been compiled.
"""

import argparse
import time

import jax

from follmer.bench.networks import UCI, predicted, problem
from follmer.fitting.fit import fit
from follmer.posterior.along_chains import ChainFlow
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import StoredDraws

NUM_DRAWS = 1000


def seconds(posterior: Posterior) -> float:
    """Of 1000 draws, compiled before."""
    taken = []
    for seed in range(2):
        began = time.perf_counter()
        jax.block_until_ready(posterior.sample(NUM_DRAWS, key=jax.random.key(seed)))
        taken.append(time.perf_counter() - began)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(UCI))
    parser.add_argument("--split", type=int, default=5)
    options = parser.parse_args()
    print(f"{'set':<9} {'flow':>7} {'chains':>7} {'seconds of 1000 draws':>22}")
    for name in options.names:
        # protein has five splits alone.
        asked = problem(name, options.split % 5 if name == "protein" else options.split)
        flow = fit(asked.target, key=jax.random.key(0), progress=False)
        if not isinstance(flow.sampler, ChainFlow):
            print(f"{name:<9} no flow predicts as well as the chains", flush=True)
            continue
        laid = flow.sampler
        stored = StoredDraws(laid.draws, "ensemble", exact=False, shares=laid.shares)
        chains = Posterior(asked.target, stored, notes=(), gradient_evaluations=0)
        assert flow.audit is not None
        chains = chains.with_audit(flow.audit)
        scores = [predicted(one, asked, jax.random.key(1))["lpd"] for one in (flow, chains)]
        told = " ".join(f"{score:7.3f}" for score in scores)
        print(f"{name:<9} {told} {seconds(flow):22.2f}", flush=True)


if __name__ == "__main__":
    main()
