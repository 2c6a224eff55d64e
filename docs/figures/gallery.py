"""The gallery's pictures and outputs: python docs/figures/gallery.py [NAME …] runs the examples.

Each script writes its figure into the folder that it is run in; figure and printed text are kept in
docs/gallery.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "gallery"
NAMES = [
    "banana",
    "eight_schools",
    "hierarchical_regression",
    "logistic_bayes_factor",
    "far_modes",
    "lotka_volterra",
    "network_bands",
    "unmixing_scene",
    "one_prior_two_data_sets",
    "own_loop",
]


def keep(name: str) -> float:
    """Run one example, keep what it drew and printed; returns its seconds."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / f"{name}.py")],
            cwd=folder,
            env=os.environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        shutil.move(Path(folder) / f"{name}.svg", KEPT / f"{name}.svg")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    (KEPT / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return time.perf_counter() - start


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        print(f"{name}: {keep(name):.0f} s", flush=True)


if __name__ == "__main__":
    main()
