"""Files of JSON and plain arrays: written whole or not at all, and never unpickled."""

import io
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from follmer.errors import FileError, ProcessError
from follmer.tools.processes import by_first, bytes_of_first, first_says, in_step

_VERSION = 2


def write(path: Path, kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the file at `path` by one that holds the header and the arrays.

    Of processes that run together the first reads and writes for all.
    """
    text = json.dumps({"follmer": kind, "version": _VERSION, **header})

    def written() -> None:
        with replacing(path) as file:
            header_bytes = np.frombuffer(text.encode(), np.uint8)
            np.savez(file, allow_pickle=False, __header__=header_bytes, **arrays)

    by_first(written)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place once it is whole, and is gone if it never is."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error}.",
            cause="the folder is not writable, or the disk is full",
        ) from error


def exists(path: Path) -> bool:
    """Whether the file is there."""
    return first_says(os.path.isfile(path))


def _opened(path: Path) -> BinaryIO:
    return io.BytesIO(bytes_of_first(path.read_bytes)) if in_step() else path.open("rb")


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and arrays of a file of that kind."""
    if not exists(path):
        raise FileError(f"there is no file {path}.")
    foreign = FileError(
        f"{path} is not a follmer {kind}.",
        cause="the file was written by something else, or was cut short",
        hint="the file that .save() wrote, copied again from its source",
    )
    try:
        with _opened(path) as file, np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        header = json.loads(arrays.pop("__header__").tobytes())
        found, version = header["follmer"], header["version"]
    except ProcessError:
        raise
    except PermissionError as error:
        raise FileError(f"cannot read {path}: {error}.") from error
    except Exception as error:
        # Bytes that are not ours fail to decode in many ways; the first one is chained.
        raise foreign from error
    if found != kind:
        raise FileError(f"{path} holds a follmer {found}, not a {kind}.")
    if version != _VERSION:
        raise FileError(
            f"{path} has format version {version}; this follmer reads {_VERSION}.",
            hint="the follmer release that wrote the file",
        )
    return header, arrays
