"""Files of JSON and plain arrays: written whole or not at all, and never unpickled."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from follmer.errors import FileError

_VERSION = 1


def write(path: Path, kind: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the file at `path` by one that holds the header and the arrays."""
    text = json.dumps({"follmer": kind, "version": _VERSION, **header})
    try:
        _write_beside_and_replace(path, text, arrays)
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error}.",
            cause="the folder is not writable, or the disk is full",
        ) from error


def _write_beside_and_replace(path: Path, text: str, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            header_bytes = np.frombuffer(text.encode(), np.uint8)
            np.savez(file, allow_pickle=False, __header__=header_bytes, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
