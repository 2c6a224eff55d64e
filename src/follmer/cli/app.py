"""The application itself, and what all of its commands share: words, errors and exit codes."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from follmer import __version__
from follmer.errors import FileError, FollmerError

# What a command ends with; 2, wrong usage, is typer's own.
FAILED = 1  # nothing was written, and stderr says why
UNUSABLE = 3  # a model was fitted and written, but its verdict is against using it
INTERRUPTED = 130  # by Ctrl-C

app = typer.Typer(
    help="Bayesian posteriors by neural Schrödinger–Föllmer flows.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"follmer {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Bayesian posteriors by neural Schrödinger–Föllmer flows."""


@contextmanager
def errors_told(as_json: bool = False) -> Iterator[None]:
    """The library's own errors end the command with their words and no traceback."""
    try:
        yield
    except FollmerError as error:
        tell(f"follmer: {error}")
        if as_json:
            typer.echo(json.dumps({"error": str(error)}, ensure_ascii=False))
        raise typer.Exit(FAILED) from error


def tell(line: str) -> None:
    """Whatever is not the answer goes to stderr."""
    typer.echo(line, err=True)


def check_writable(path: Path) -> None:
    """Raise now, not after an hour's work, where a file cannot be written later."""
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file to write.", hint="a name in that folder")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {path}: {folder} is no folder that can be written.")
