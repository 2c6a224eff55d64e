"""How often the default search finds a narrow mode beside a wide one, and all of many.

    python -m benchmarks.search [--searches 12]

Climbs alone, no fits. Written to docs/results/bench/search.json.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from follmer import Target
from follmer.mcmc.climbs import climb
from follmer.mcmc.modes import Modes, find_modes, separate_modes
from follmer.plans import POLICY
from follmer.targets import Density
from follmer.tools.tables import machine, markdown

RECORD = Path(__file__).parent.parent / "docs" / "results" / "bench" / "search.json"

Mixture = tuple[np.ndarray, np.ndarray]  # means and widths of round Gaussians
Kind = Callable[[np.random.Generator, int], Mixture]


class SearchRecord(NamedTuple):
    """Mixtures of one kind: how many searches found every mode."""

    kind: str
    dim: int
    searches: int
    found_all: int
    climbs: float  # the median
    gradients: float  # the median


def beside(narrower: float, apart: float, *, along_an_axis: bool = False) -> Kind:
    """A mode of width 1 and a narrower one, on either side of a point near 0."""

    def make(rng: np.random.Generator, dim: int) -> Mixture:
        way = np.eye(dim)[0] if along_an_axis else rng.normal(size=dim)
        way *= apart / np.linalg.norm(way)
        ends = np.stack([-0.4 * way, 0.6 * way])
        return rng.normal(size=dim) + ends, np.array([1.0, 1.0 / narrower])

    return make


def many(rng: np.random.Generator, dim: int) -> Mixture:
    """Modes in boxes of ± 20 to ± 100, their widths within a factor of four."""
    count, reach = int(rng.integers(10, 51)), rng.uniform(20.0, 100.0)
    widths = np.exp(rng.uniform(np.log(0.5), np.log(2.0), count))
    return rng.uniform(-reach, reach, (count, dim)), widths


KINDS: tuple[tuple[str, int, Kind], ...] = (
    ("4 × narrower, 70 apart", 4, beside(4.0, 70.0)),
    ("8 × narrower, 70 apart", 4, beside(8.0, 70.0)),
    ("2 × narrower, 50 apart", 8, beside(2.0, 50.0)),
    ("1.5 × narrower, 50 apart", 20, beside(1.5, 50.0)),
    ("2 × narrower, 20 apart", 20, beside(2.0, 20.0)),
    ("2 × narrower, 50 apart", 20, beside(2.0, 50.0)),
    ("1.3 × narrower, 30 apart", 50, beside(1.3, 30.0)),
    ("4 × narrower, 40 apart in one coordinate", 10, beside(4.0, 40.0, along_an_axis=True)),
    ("4 × narrower, 40 apart in one coordinate", 30, beside(4.0, 40.0, along_an_axis=True)),
    ("10 to 50 in a box", 3, many),
    ("10 to 50 in a box", 5, many),
)


def searched(kind: str, dim: int, make: Kind, searches: int) -> SearchRecord:
    """Search so many mixtures of a kind."""
    complete, climbs, gradients = 0, list[int](), list[int]()
    for seed in range(searches):
        means, widths = make(np.random.default_rng(seed), dim)
        density = Density(Target(_log_density(means, widths), like=jnp.zeros(dim)))
        found = _found(density, seed)
        climbs.append(found.num_climbs)
        gradients.append(density.gradient_evaluations)
        # Where components overlap, their means are no modes of their own.
        ends = climb(density, means)
        complete += len(found.x) >= np.sum(separate_modes(density, ends))
    middle = float(np.median(climbs)), float(np.median(gradients))
    return SearchRecord(kind, dim, searches, int(complete), *middle)


def _log_density(means: np.ndarray, widths: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """Equal shares."""
    logs = -means.shape[1] * np.log(widths)
    return lambda x: logsumexp(logs - 0.5 * jnp.sum((x - means) ** 2, axis=1) / widths**2)


def _found(density: Density, seed: int) -> Modes:
    """What the default fit would find."""
    dim, cost = density.dim, density.target.gradient_cost
    first, to_one, most = POLICY.num_climbs(dim, cost)
    return find_modes(
        density,
        jax.random.key(seed),
        num_starts=first,
        climbs_to_one=to_one,
        max_climbs=most,
        num_screened=POLICY.num_screened(dim, cost),
    )


def table(records: Sequence[SearchRecord]) -> str:
    """A row for each kind."""
    rows = [
        {
            "the other modes": one.kind,
            "dim": str(one.dim),
            "found all": f"{one.found_all} of {one.searches}",
            "climbs": f"{one.climbs:.0f}",
            "gradients": f"{one.gradients:,.0f}",
        }
        for one in records
    ]
    return markdown(rows, left={"the other modes"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=12)
    searches = parser.parse_args().searches
    measured_on = machine(f"python -m benchmarks.search --searches {searches}")
    records = []
    for kind, dim, make in KINDS:
        records.append(searched(kind, dim, make, searches))
        print(records[-1], flush=True)
    stored = {"machine": measured_on, "results": [one._asdict() for one in records]}
    RECORD.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
