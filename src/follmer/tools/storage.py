"""Files of JSON and plain arrays: written whole or not at all, and never unpickled."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from follmer.errors import FileError

_VERSION = 2


def write(path: Path, kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the file at `path` by one that holds the header and the arrays."""
    text = json.dumps({"follmer": kind, "version": _VERSION, **header})
    with replacing(path) as file:
        header_bytes = np.frombuffer(text.encode(), np.uint8)
        np.savez(file, allow_pickle=False, __header__=header_bytes, **arrays)


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


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and arrays of a file of that kind."""
    if not os.path.isfile(path):
        raise FileError(f"there is no file {path}.")
    foreign = FileError(
        f"{path} is not a follmer {kind}.",
        cause="the file was written by something else, or was cut short",
        hint="the file that .save() wrote, copied again from its source",
    )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
        header = json.loads(arrays.pop("__header__").tobytes())
        found, version = header["follmer"], header["version"]
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
