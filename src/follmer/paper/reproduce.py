"""`follmer reproduce`: experiments run into a folder of results, figures and a page."""

import itertools
import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from follmer import plots
from follmer.errors import in_a_line
from follmer.paper.experiments.experiment import METHODS, Picture, Record, Trial
from follmer.paper.experiments.running import EXPERIMENTS, Place, Result, run
from follmer.paper.report import write_page
from follmer.paper.report.reading import read_run
from follmer.tools.checks import options_checked
from follmer.tools.progress import Progress
from follmer.tools.storage import replacing
from follmer.tools.tables import commit, machine

_BETWEEN = " && "


@options_checked
def reproduce(
    names: Sequence[str],
    *,
    preset: str = "auto",
    methods: Sequence[str] = METHODS,
    seeds: int = 5,
    iterations: int | None = None,
    out: str | Path = "results",
    missing: bool = False,
    tiny: bool = False,
    progress: Progress = lambda line: None,
) -> Path:
    """Run experiments of the paper into the folder `out`; returns its page, report.html.

    **Arguments:**

    - `names`: which of `follmer.paper.experiments.running.EXPERIMENTS`.
    - `preset`: "auto", the library's default; or "paper", the authors' setting.
    - `methods`: those an experiment lacks are passed by.
    - `seeds`: how often everything is run.
    - `iterations`: in place of every method's own number of them.
    - `out`: made where it is not there. In a folder of earlier runs, results of the same
      experiments, preset and methods are replaced and all others stay, so that presets and
      methods can share a page. Figures show all methods: where results of other methods stay, so
      do the earlier figures, and none are drawn.
    - `missing`: only what the folder lacks is run, as after an interruption or with more `seeds`;
      what failed is run again.
    - `tiny`: all the way at toy size, to see that it works; the numbers mean nothing.
    - `progress`: told a line at a time.

    What fails is recorded as failed. Every result is on disk as soon as it is there, so an
    interrupted run keeps what it has.
    """
    names = tuple(dict.fromkeys(names))
    command = _command(names, preset, methods, seeds, iterations, missing, tiny)
    held = _held(Path(out)) if missing else frozenset()
    # These refuse before anything is written, and before hours of training.
    results = run(
        names,
        preset=preset,
        methods=methods,
        seeds=seeds,
        iterations=iterations,
        tiny=tiny,
        held=held,
        progress=progress,
    )
    plots.figure()
    folder = _Folder(Path(out), command, held)
    try:
        for name, own in itertools.groupby(results, key=lambda result: result[0].experiment):
            _reproduce_one(folder, name, preset, methods, own, progress)
    finally:
        page = write_page(folder.path)
    return page


def _reproduce_one(
    folder: "_Folder",
    name: str,
    preset: str,
    methods: Sequence[str],
    results: Iterator[Result],
    progress: Progress,
) -> None:
    # Every seed's record, but the posteriors of the first seed only: they can be large.
    records, trials = list[Record](), list[Trial]()
    others_stay = False
    for record, trial in results:
        if not records:
            others_stay = folder.clear(name, preset, methods)
        records.append(record)
        folder.add_record(record._asdict())
        if trial is not None:
            progress(f"  {record.seconds:.1f} s, {record.settings['verdict']}")
            trials += [trial] if record.seed == 0 else []
    if not trials:
        return
    if others_stay:
        progress(f"{name} ({preset}): no new figures, for other results stay")
        return
    progress(f"{name} ({preset}): figures")
    try:
        for picture in EXPERIMENTS[name].pictures(preset, trials, records):
            folder.add_picture(name, preset, picture)
    except Exception as error:
        # The results stand without their figures, and other experiments wait.
        progress(f"failed: the figures of {name} cannot be drawn: {in_a_line(error)}")


class _Folder:
    """The files of a run: what earlier runs left there, and what this one adds."""

    def __init__(self, path: Path, command: str, held: Collection[Place]):
        self.path = path
        self._held = held
        self._records: list[dict[str, Any]] = []
        self._figures: list[dict[str, Any]] = []
        self._command = command
        # That of the code which runs: others may be checked out before the run ends.
        self._commit = commit()
        self._commands = [command]
        if (path / "results.json").exists():
            earlier = read_run(path)
            self._records = earlier.records
            self._figures = [figure.words() for figure in earlier.figures]
            commands = [*earlier.machine["command"].split(_BETWEEN), command]
            self._commands = list(dict.fromkeys(commands))
        self._write_run()
        self._write("figures.json", self._figures)
        # Last, for where it is the others are.
        self._write("results.json", self._records)

    def clear(self, experiment: str, preset: str, methods: Sequence[str]) -> bool:
        """Forget what earlier runs left of these methods and is not held; whether others stay.

        Figures go where there are no others.
        """

        def is_own(content: dict[str, Any]) -> bool:
            return (content["experiment"], content["preset"]) == (experiment, preset)

        def stays(record: dict[str, Any]) -> bool:
            return record["method"] not in methods or _place(record) in self._held

        others = [one for one in self._records if is_own(one) and stays(one)]
        gone = [] if others else [one["file"] for one in self._figures if is_own(one)]
        self._figures = [one for one in self._figures if one["file"] not in gone]
        self._records = [one for one in self._records if not is_own(one) or one in others]
        self._commands = [one for one in self._commands if not self._does_again(one)]
        self._write_run()
        self._write("figures.json", self._figures)
        self._write("results.json", self._records)
        for file in gone:
            (self.path / file).unlink(missing_ok=True)
        return bool(others)

    def add_record(self, record: dict[str, Any]) -> None:
        """Keep a record, with the run that made it: others in the folder may be of other runs."""
        date = machine(self._command)["date"]
        told = {"made": f"{date}, commit {self._commit or 'unknown'}: {self._command}"}
        record = {**record, "settings": {**record["settings"], **told}}
        self._records = sorted([*self._records, record], key=_order)
        self._write("results.json", self._records)

    def add_picture(self, experiment: str, preset: str, picture: Picture) -> None:
        file = f"figures/{experiment}_{preset}_{picture.name}.svg"
        plots.save(picture.figure, self.path / file)
        words = {"experiment": experiment, "preset": preset, "file": file}
        words |= {"title": picture.title, "caption": picture.caption}
        self._figures = sorted([*self._figures, words], key=_order)
        self._write("figures.json", self._figures)

    def _does_again(self, command: str) -> bool:
        """Whether this run replaces all that an earlier command left."""
        what, own = (one.partition(" --seeds ")[0] for one in (command, self._command))
        return (
            not self._held
            and command != self._command
            and what == own
            and _methods(command) <= _methods(self._command)
        )

    def _write_run(self) -> None:
        measured_on = machine(_BETWEEN.join(self._commands))
        self._write("run.json", {**measured_on, "commit": self._commit})

    def _write(self, name: str, content: Any) -> None:
        with replacing(self.path / name) as file:
            file.write(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode())


def _held(path: Path) -> frozenset[Place]:
    """What a folder holds and did not fail; nothing where there is no folder."""
    records = read_run(path).records if (path / "results.json").exists() else []
    return frozenset(_place(one) for one in records if "error" not in one["settings"])


def _place(record: dict[str, Any]) -> Place:
    settings = record["settings"]
    own = (record["experiment"], record["preset"], record["method"], record["seed"])
    return (*own, settings.get("case", ""))


def _methods(command: str) -> set[str]:
    """Those that a command names; all of them where it names none."""
    words = shlex.split(command)
    named = words[words.index("--methods") + 1].split(",") if "--methods" in words else METHODS
    return set(named)


def _order(content: dict[str, Any]) -> int:
    """Experiments in their own order, whichever was run first; strangers at the end."""
    known = list(EXPERIMENTS)
    return known.index(content["experiment"]) if content["experiment"] in known else len(known)


def _command(
    names: Sequence[str],
    preset: str,
    methods: Sequence[str],
    seeds: int,
    iterations: int | None,
    missing: bool,
    tiny: bool,
) -> str:
    words = ["follmer", "reproduce", *names, "--preset", preset, "--seeds", str(seeds)]
    if tuple(methods) != METHODS:
        words += ["--methods", ",".join(methods)]
    if iterations is not None:
        words += ["--iterations", str(iterations)]
    if missing:
        words += ["--missing"]
    return shlex.join([*words, "--tiny"] if tiny else words)
