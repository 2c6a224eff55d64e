"""The one finder of data files: where they may lie, what they must hold, where they come from."""

import bz2
import gzip
import hashlib
import importlib.util
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from follmer.datasets.registry import FILES, Source
from follmer.errors import FileError, optional_module

# Looked at where FOLLMER_DATA is unset, for those who work on follmer itself.
_DEVELOPERS = ("data", "../shared/data")
_SUFFIXES = ("", ".gz", ".bz2")
# What files, connections, pooch (or its absence), the two unpackers and archives raise.
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zlib.error, tarfile.TarError)


def data_file(name: str) -> Path:
    """The file of that name, or its .gz or .bz2.

    Looked for under `FOLLMER_DATA` (where that is unset: ./data and ../shared/data) and in the
    user's cache; else downloaded into the cache, where the file has a home.
    """
    found = _found(name)
    if found is not None:
        return found
    missing = f"the data file {name} was not found under {', '.join(map(str, _folders()))}"
    known = FILES.get(name)
    if known is None or known.url is None:
        raise FileError(
            f"{missing}, and there is no home to download it from.", hint=_what_to_put_where(name)
        )
    try:
        return _download(name, known)
    except _UNREADABLE as error:
        raise FileError(
            f"{missing}, and its download from {known.url} failed: {error}",
            hint=_what_to_put_where(name),
        ) from error


def is_there(name: str) -> bool:
    """Whether the file lies on this machine."""
    return _found(name) is not None


def read(name: str) -> bytes:
    """The content of a data file, uncompressed; that of a registered one has its sha256."""
    path, known = data_file(name), FILES.get(name)
    wanted = f"sha256 {known.sha256}" if known else "no registered checksum"
    try:
        content = _unpacked(path.read_bytes())
    except _UNREADABLE as error:
        raise _corrupt(f"cannot read {path} ({wanted}): {error}.") from error
    found = hashlib.sha256(content).hexdigest()
    if known and found not in (known.sha256, known.rewritten):
        raise _corrupt(f"the content of {path} has sha256 {found}, not {known.sha256}.")
    return content


def _found(name: str) -> Path | None:
    paths = (folder / f"{name}{suffix}" for folder in _folders() for suffix in _SUFFIXES)
    return next(filter(Path.is_file, paths), None)


def _corrupt(what: str) -> FileError:
    return FileError(
        what,
        cause="a download or copy that was cut short, or another version of the file",
        hint="delete it and get it again",
    )


def _folders() -> Iterator[Path]:
    own = os.environ.get("FOLLMER_DATA")
    if own and not Path(own).is_dir():
        raise FileError(f"FOLLMER_DATA names {own}, which is not a folder.")
    yield from map(Path, [own] if own else _DEVELOPERS)
    # Without pooch nothing can have been downloaded.
    if importlib.util.find_spec("pooch"):
        yield _cache()


def _download(name: str, known: Source) -> Path:
    """Fetched, unpacked and checked beside its place in the cache, then moved there."""
    # Not streamed: a refused stream would leave its connection open.
    download = _pooch().HTTPDownloader(stream=False)

    def fetch(url: str, path: str, caller: Any) -> None:
        if known.member is None:
            download(url, path, caller)
            content = _unpacked(Path(path).read_bytes())
        else:
            # One archive serves all its members: they are checked, it is not.
            at = _cache() / "archives"
            archive = _pooch().retrieve(url, None, path=at, downloader=download)
            content = _member(Path(archive).read_bytes(), known.member)
        Path(path).write_bytes(content)

    cache, checksum = _cache(), f"sha256:{known.sha256}"
    return Path(_pooch().retrieve(known.url, checksum, fname=name, path=cache, downloader=fetch))


def _member(archive: bytes, name: str) -> bytes:
    """The content of one file of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        file = files.extractfile(name)
        if file is None:
            raise ValueError(f"{name} is no file of the archive")
        return file.read()


def _cache() -> Path:
    return Path(_pooch().os_cache("follmer"))


def _pooch() -> ModuleType:
    return optional_module("pooch", extra="datasets", purpose="downloading data")


def _unpacked(content: bytes) -> bytes:
    """Told by the first bytes: servers and browsers unpack files without renaming them."""
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content)
    if content.startswith(b"BZh"):
        return bz2.decompress(content)
    return content


def _what_to_put_where(name: str) -> str:
    own = os.environ.get("FOLLMER_DATA")
    place = str(Path(own) / name) if own else f"<folder>/{name} and set FOLLMER_DATA=<folder>"
    known = FILES.get(name)
    which = f"the file with sha256 {known.sha256}" if known else "the file"
    return f"put {which} (or its .gz or .bz2) at {place}"
