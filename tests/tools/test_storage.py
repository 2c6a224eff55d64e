import gc
import io
import json
import os
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from follmer import FileError
from follmer.tools import storage

ARRAYS = {
    "single": np.array([1.5, np.nan, -np.inf], np.float32),
    "double": np.linspace(0.0, 1.0, 50).reshape(5, 10),
    "scalar": np.array(3),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 2)),
}


def make(path, header, **arrays):
    """A file with any header, as another version or program might write."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        np.savez(file, __header__=np.frombuffer(header, np.uint8), **arrays)


class Bomb:
    """Leaves a mark in the working folder when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run.follmer"


@pytest.fixture
def stored(path):
    storage.write(path, "posterior", {"name": "first"}, ARRAYS)
    return path


def test_what_was_written_is_read_back(stored):
    header, arrays = storage.read(stored, "posterior")
    assert header["name"] == "first"
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert arrays[name].dtype == values.dtype
        np.testing.assert_array_equal(arrays[name], values)


def test_a_header_keeps_every_json_value(path):
    header = {"text": "Föllmer", "list": [1, 2.5, None], "nested": {"yes": True}}
    storage.write(path, "posterior", header, {})
    found, _ = storage.read(path, "posterior")
    assert {name: found[name] for name in header} == header


def test_a_second_write_replaces_the_first(stored):
    storage.write(stored, "posterior", {"name": "second"}, {})
    header, arrays = storage.read(stored, "posterior")
    assert (header["name"], arrays) == ("second", {})
    assert os.listdir(stored.parent) == [stored.name]


def test_missing_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "run"
    storage.write(path, "posterior", {}, {})
    assert storage.read(path, "posterior")[1] == {}


def interrupted(error):
    def savez(file, **_):
        file.write(b"half of a file")
        raise error

    return savez


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=repr
)
def test_a_write_that_fails_half_way_leaves_the_old_file(stored, monkeypatch, error):
    before = stored.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", interrupted(error))
        with pytest.raises(type(error)):
            storage.write(stored, "posterior", {"name": "second"}, {})
    assert stored.read_bytes() == before
    assert os.listdir(stored.parent) == [stored.name]


def test_what_cannot_be_stored_without_pickle_is_not_stored(stored):
    before = stored.read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        storage.write(stored, "posterior", {}, {"object": np.array([None])})
    assert stored.read_bytes() == before
    assert os.listdir(stored.parent) == [stored.name]


def test_a_full_disk_is_a_file_error(path, monkeypatch):
    monkeypatch.setattr(np, "savez", interrupted(OSError(28, "No space left on device")))
    with pytest.raises(FileError, match=r"cannot write .*run.follmer: .*No space left"):
        storage.write(path, "posterior", {}, {})


def test_others_may_read_the_file_where_the_umask_lets_them(path):
    path.touch()
    with storage.replacing(path.with_name("page")) as file:
        file.write(b"text")
    assert path.with_name("page").stat().st_mode == path.stat().st_mode


def test_a_folder_in_the_files_place_is_a_file_error(path):
    path.mkdir()
    with pytest.raises(FileError, match=r"cannot write .*run.follmer"):
        storage.write(path, "posterior", {}, {})


def test_a_file_in_the_folders_place_is_a_file_error(tmp_path):
    (tmp_path / "taken").write_text("text")
    with pytest.raises(FileError, match=r"(?s)cannot write .*folder is not writable"):
        storage.write(tmp_path / "taken" / "run", "posterior", {}, {})


def test_an_unwritable_folder_is_a_file_error(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match=r"(?s)cannot write .*denied.*folder is not writable"):
        storage.write(path, "posterior", {}, {})


def test_a_missing_file_is_named(path):
    with pytest.raises(FileError, match=r"there is no file .*run.follmer"):
        storage.read(path, "posterior")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(FileError, match="there is no file"):
        storage.read(tmp_path, "posterior")


def test_a_name_that_no_file_can_have_is_a_file_error(tmp_path):
    with pytest.raises(FileError):
        storage.read(tmp_path / ("x" * 300), "posterior")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(stored, share):
    content = stored.read_bytes()
    stored.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileError, match=r"(?s)not a follmer posterior.*cut short"):
        storage.read(stored, "posterior")


def test_a_refused_file_is_closed(stored):
    stored.write_bytes(stored.read_bytes()[:-10])
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(FileError):
            storage.read(stored, "posterior")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_flipped_bit_in_an_array_is_noticed(stored):
    content = bytearray(stored.read_bytes())
    at = content.index(np.linspace(0.0, 1.0, 50).tobytes())
    content[at + 20] ^= 1
    stored.write_bytes(content)
    with pytest.raises(FileError, match="not a follmer posterior"):
        storage.read(stored, "posterior")


def saved(write, *args, **kwargs):
    buffer = io.BytesIO()
    write(buffer, *args, **kwargs)
    return buffer.getvalue()


def spoilt_compressed():
    content = bytearray(saved(np.savez_compressed, a=np.random.default_rng(0).random(100)))
    for at in range(60, 80):
        content[at] ^= 255
    return bytes(content)


def zip_of_text():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__header__", "text")
    return buffer.getvalue()


FOREIGN = {
    "text": lambda: b"mu,sigma\n0.1,0.2\n",
    "empty": lambda: b"",
    "plain npz": lambda: saved(np.savez, a=np.zeros(3)),
    "npy": lambda: saved(np.save, np.zeros(3)),
    "zip": zip_of_text,
    "spoilt compressed npz": spoilt_compressed,
    "pickle": lambda: pickle.dumps({"a": 1}),
    "pickling npz": lambda: saved(np.savez, a=np.array([Bomb()], object)),
    "pickling header": lambda: saved(np.savez, __header__=np.array([Bomb()], object)),
    "pickling npy": lambda: saved(np.save, np.array([Bomb()], object)),
    "pickled bomb": lambda: pickle.dumps(Bomb()),
}


@pytest.mark.parametrize("content", FOREIGN)
def test_a_foreign_file_is_refused_and_never_unpickled(path, content):
    path.write_bytes(FOREIGN[content]())
    with pytest.raises(FileError, match=r"(?s)run.follmer is not a follmer posterior.*Try:"):
        storage.read(path, "posterior")
    assert not Path("exploded").exists()


def test_the_bomb_would_explode(path):
    pickle.loads(pickle.dumps(Bomb()))
    assert Path("exploded").exists()


def test_a_follmer_header_does_not_make_pickles_welcome(path):
    make(path, {"follmer": "posterior", "version": 1}, a=np.array([Bomb()], object))
    with pytest.raises(FileError, match="not a follmer posterior"):
        storage.read(path, "posterior")
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    "header", [b"{not json", b"\xff\xfe", b"[]", b"3", b"{}", b'{"follmer": "posterior"}'], ids=str
)
def test_a_header_that_is_not_ours_is_refused(path, header):
    make(path, header)
    with pytest.raises(FileError):
        storage.read(path, "posterior")


def test_another_kind_is_named(stored):
    with pytest.raises(FileError, match="holds a follmer posterior, not a checkpoint"):
        storage.read(stored, "checkpoint")


def test_another_version_is_named(path):
    make(path, {"follmer": "posterior", "version": 99})
    with pytest.raises(FileError, match=r"(?s)format version 99; this follmer reads 2.*release"):
        storage.read(path, "posterior")
