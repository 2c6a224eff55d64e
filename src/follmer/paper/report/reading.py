"""A run's folder as it lies on disk, read and checked."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from follmer.errors import FileError
from follmer.pages import picture_size

_RECORD = {
    "experiment": str,
    "preset": str,
    "method": str,
    "seed": int,
    "metrics": dict,
    "seconds": int | float,
    "settings": dict,
}
_FIGURE = dict.fromkeys(("experiment", "preset", "file", "title", "caption"), str)
_MACHINE = {"command": str, "date": str, "versions": dict}


class Figure(NamedTuple):
    """A picture with its words; `content` is that of the SVG or PNG file."""

    experiment: str
    preset: str
    file: str
    title: str
    caption: str
    content: bytes
    width: int
    height: int

    def words(self) -> dict[str, str]:
        """Itself as figures.json has it."""
        return {name: getattr(self, name) for name in _FIGURE}


class Run(NamedTuple):
    machine: dict[str, Any]
    records: list[dict[str, Any]]
    figures: list[Figure]


def read_run(directory: Path) -> Run:
    """The machine, the records and the figures of a run; an error that names what is not there."""
    if not os.path.isdir(directory):
        raise FileError(
            f"there is no folder {directory}.", hint="the folder that follmer reproduce wrote"
        )
    machine = _json(directory / "run.json")
    _check(directory / "run.json", "the run", machine, _MACHINE)
    records = _list(directory / "results.json", "record", _RECORD)
    for place, record in enumerate(records):
        _check_record(directory / "results.json", f"record {place}", record)
    figures = _list(directory / "figures.json", "figure", _FIGURE)
    return Run(machine, records, [_figure(directory, figure) for figure in figures])


def _figure(directory: Path, words: dict[str, str]) -> Figure:
    path = directory / words["file"]
    if path.suffix not in (".svg", ".png"):
        raise FileError(f"{directory / 'figures.json'} names {words['file']}, no SVG or PNG.")
    if not path.resolve().is_relative_to(directory.resolve()):
        raise FileError(f"{directory / 'figures.json'} names {words['file']}, outside its folder.")
    content = _bytes(path)
    width, height = _size(path, content)
    named = {name: words[name] for name in _FIGURE}
    return Figure(**named, content=content, width=width, height=height)


def _size(path: Path, content: bytes) -> tuple[int, int]:
    """Width and height in pixels; of an SVG, those of its coordinates."""
    size = picture_size(content)
    if size is None or content.startswith(b"\x89PNG") != (path.suffix == ".png"):
        raise _spoilt(path, f"it is no whole {path.suffix[1:].upper()}")
    return size


def _list(path: Path, kind: str, fields: dict[str, Any]) -> list[dict[str, Any]]:
    content = _json(path)
    if not isinstance(content, list):
        raise _spoilt(path, f"a list of {kind}s is wanted")
    for place, one in enumerate(content):
        _check(path, f"{kind} {place}", one, fields)
    return content


def _check(path: Path, what: str, content: Any, fields: dict[str, Any]) -> None:
    if not isinstance(content, dict):
        raise _spoilt(path, f"{what} is no object")
    for name, kind in fields.items():
        if name not in content:
            raise _spoilt(path, f"{what} has no {name}")
        if not isinstance(content[name], kind):
            raise _spoilt(path, f"the {name} of {what} is {content[name]!r}")


def _check_record(path: Path, what: str, record: dict[str, Any]) -> None:
    for name, value in record["metrics"].items():
        if not isinstance(value, int | float | None):
            raise _spoilt(path, f"the metric {name} of {what} is {value!r}, not a number")
    settings = record["settings"]
    for name in ("case", "verdict", "error"):
        if not isinstance(settings.get(name, ""), str | None):
            raise _spoilt(path, f"the {name} of {what} is {settings[name]!r}, not a text")
    notes = settings.get("notes") or []
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise _spoilt(path, f"the notes of {what} are {notes!r}, not a list of texts")


def _json(path: Path) -> Any:
    try:
        return json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise _spoilt(path, str(error)) from error


def _bytes(path: Path) -> bytes:
    if not os.path.isfile(path):
        raise FileError(
            f"there is no file {path}.",
            cause="the run was interrupted, or a part of its folder was moved away",
            hint="the whole folder that follmer reproduce wrote, or a new one by it",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}.") from error


def _spoilt(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} cannot be used: {why}.",
        cause="it was edited, cut short, or written by something else",
        hint="follmer reproduce again",
    )
