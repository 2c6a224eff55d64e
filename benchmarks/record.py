"""What docs/results holds of the paper's experiments, and what is missing.

    python -m benchmarks.record

A line for each experiment, preset and method: the seeds that are there of those that are wanted,
the commits that made them, the days, and seconds; then the commands of what is missing or of
unknown commit. A method that is the same under both presets is wanted under one of them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from benchmarks.experiments_page import MADE, RESULTS, told_of
from follmer.paper.experiments.experiment import PRESETS
from follmer.paper.experiments.running import EXPERIMENTS
from follmer.tools.tables import markdown

# Where a row of one seed takes half an hour.
_FEWER = {"unmixing": 3, "mnist": 3, "cifar10": 3, "weight_marginals": 3}
_SEEDS = 5


class Held(NamedTuple):
    """What there is of one method of an experiment's preset."""

    seeds: set[int]
    commits: set[str]
    days: set[str]
    seconds: list[float]

    def suffices(self, count: int) -> bool:
        return len(self.seeds) >= count and "unknown" not in self.commits


Place = tuple[str, str, str]
NOTHING = Held(set(), set(), set(), [])


def held() -> tuple[dict[Place, Held], dict[tuple[str, str], str]]:
    """Of every experiment, preset and method; and the folder of each experiment's preset."""
    found: dict[Place, Held] = defaultdict(lambda: Held(set(), set(), set(), []))
    folders: dict[tuple[str, str], str] = {}
    for path in sorted(RESULTS.glob("*/results.json")):
        run = json.loads((path.parent / "run.json").read_text())
        for record in json.loads(path.read_text()):
            made = MADE.fullmatch(record["settings"].get("made", told_of(run)))
            assert made, record["settings"]["made"]
            where = record["experiment"], record["preset"]
            folders[where] = path.parent.name
            own = found[(*where, record["method"])]
            own.seeds.add(record["seed"])
            own.commits.add(made["commit"])
            own.days.add(made["day"])
            own.seconds.append(record["seconds"])
    return found, folders


def wanted() -> Iterator[tuple[Place, int, list[str]]]:
    """Every method of every experiment and preset, how many seeds, and presets that have it too."""
    for name, experiment in EXPERIMENTS.items():
        by_preset = {preset: experiment.methods(preset, tiny=False) for preset in PRESETS}
        for preset, methods in by_preset.items():
            for method, how in methods.items():
                same = [
                    other
                    for other in PRESETS
                    if other != preset
                    and method in by_preset[other]
                    and by_preset[other][method].settings == how.settings
                ]
                yield (name, preset, method), _FEWER.get(name, _SEEDS), same


def lines(found: Mapping[Place, Held]) -> list[dict[str, str]]:
    """The table's rows."""
    told = []
    for (name, preset, method), count, same in wanted():
        own = found.get((name, preset, method), NOTHING)
        elsewhere = [one for one in same if found.get((name, one, method), NOTHING).seeds]
        is_there = bool(own.seeds) or not elsewhere
        told.append(
            {
                "experiment": name,
                "preset": preset,
                "method": method,
                "seeds": f"{len(own.seeds)} of {count}" if is_there else f"as {elsewhere[0]}",
                "commits": ", ".join(sorted(own.commits)),
                "days": " to ".join(_ends(own.days)),
                "seconds": " to ".join(_ends(f"{seconds:.0f}" for seconds in own.seconds)),
            }
        )
    return told


def _ends(values: Iterable[str]) -> list[str]:
    """The least and the greatest, once where they are one."""
    ordered = sorted(set(values), key=lambda text: (len(text), text))
    return [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered


def commands(found: Mapping[Place, Held], folders: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """What to run for a whole record, one command for each experiment's preset."""
    lacking: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    asked = set()
    for (name, preset, method), count, same in wanted():
        own = found.get((name, preset, method), NOTHING)
        others = [found.get((name, one, method), NOTHING) for one in same]
        if own.suffices(count) or any(len(one.seeds) > len(own.seeds) for one in others):
            continue
        if not any((name, one, method) in asked for one in same):
            asked.add((name, preset, method))
            lacking[name, preset, count].append(method)
    for (name, preset, count), methods in lacking.items():
        folder = folders.get((name, preset)) or folders.get((name, "auto"), name)
        commits = set[str]().union(
            *(found.get((name, preset, method), NOTHING).commits for method in methods)
        )
        rest = " --missing" if commits and "unknown" not in commits else ""
        yield (
            f"follmer reproduce {name} --preset {preset} --seeds {count} "
            f"--methods {','.join(methods)} --out docs/results/{folder}{rest}"
        )


def main() -> None:
    found, folders = held()
    print(markdown(lines(found), left={"experiment", "preset", "method", "commits", "days"}))
    print("\nMissing, or of an unknown commit:\n")
    print("\n".join(commands(found, folders)))


if __name__ == "__main__":
    main()
