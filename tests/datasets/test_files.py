"""Where data files are found, what is let in, and what a download leaves behind."""

import bz2
import functools
import gzip
import hashlib
import http.server
import io
import sys
import tarfile
import threading

import pooch
import pytest

from follmer import FileError
from follmer.datasets.files import data_file, read
from follmer.datasets.registry import FILES, Source

CONTENT = b"1 2 3\n"
NAME = "tiny/tiny.txt"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PACKED = [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)]


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.requests.append(self.path)


class Home:
    """A folder served on this machine, and what was asked of it."""

    def __init__(self, folder, server):
        self.folder, self.requests = folder, server.requests
        self.url = f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """FOLLMER_DATA, and one registered file without a home."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("FOLLMER_DATA", str(folder))
    monkeypatch.setitem(FILES, NAME, Source(SHA256))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "follmer"


@pytest.fixture
def home(tmp_path, folder, cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    handler = functools.partial(Handler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        home = Home(served, server)
        monkeypatch.setitem(FILES, NAME, Source(SHA256, f"{home.url}/tiny"))
        yield home
        server.shutdown()
        thread.join()


def put(folder, content, suffix=""):
    path = folder / f"{NAME}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("suffix", "pack"), PACKED, ids=["plain", "gz", "bz2"])
def test_a_file_is_read_packed_or_not(folder, suffix, pack):
    path = put(folder, pack(CONTENT), suffix)
    assert data_file(NAME) == path
    assert read(NAME) == CONTENT


def test_the_users_own_folder_comes_before_the_cache(folder, cache):
    in_cache = put(cache, CONTENT)
    assert data_file(NAME) == in_cache
    own = put(folder, CONTENT)
    assert data_file(NAME) == own


def test_developers_folders_count_only_where_none_is_named(folder, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    beside = put(tmp_path / "shared" / "data", CONTENT)
    with pytest.raises(FileError, match="was not found"):
        data_file(NAME)
    monkeypatch.delenv("FOLLMER_DATA")
    assert data_file(NAME).resolve() == beside
    inside = put(folder / "data", CONTENT)
    assert data_file(NAME).resolve() == inside


def test_a_missing_file_is_told_with_what_to_put_where(folder):
    with pytest.raises(FileError) as caught:
        read(NAME)
    assert f"the data file {NAME} was not found under {folder}, " in str(caught.value)
    assert f"put the file with sha256 {SHA256} " in str(caught.value)
    assert str(caught.value).endswith(f"at {folder / NAME}")


def test_a_missing_file_is_told_where_no_folder_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLLMER_DATA")
    with pytest.raises(FileError, match=rf"<folder>/{NAME} and set FOLLMER_DATA=<folder>"):
        data_file(NAME)


def test_a_file_without_a_checksum_is_told_without_one(folder):
    with pytest.raises(FileError, match=r"(?s)posteriordb/x\.json was not found.*put the file \("):
        data_file("posteriordb/x.json")


def test_a_folder_that_is_none_is_told(folder, monkeypatch):
    monkeypatch.setenv("FOLLMER_DATA", str(folder / "typo"))
    with pytest.raises(FileError, match="typo, which is not a folder"):
        data_file(NAME)


def test_a_corrupt_file_is_told_with_both_checksums(folder):
    path = put(folder, b"1 2 4\n")
    with pytest.raises(FileError) as caught:
        read(NAME)
    found = hashlib.sha256(b"1 2 4\n").hexdigest()
    assert f"the content of {path} has sha256 {found}, not {SHA256}." in str(caught.value)


@pytest.mark.parametrize(("suffix", "pack"), PACKED[1:], ids=["gz", "bz2"])
def test_a_packed_file_cut_short_is_told(folder, suffix, pack):
    path = put(folder, pack(CONTENT)[:-6], suffix)
    with pytest.raises(FileError) as caught:
        read(NAME)
    assert f"cannot read {path} (sha256 {SHA256}): " in str(caught.value)


def test_a_file_without_a_checksum_is_read_as_it_is(folder):
    (folder / "other.json.gz").write_bytes(gzip.compress(b"{}"))
    assert read("other.json") == b"{}"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_a_missing_file_is_downloaded_once_and_kept_unpacked(home, cache, pack):
    (home.folder / "tiny").write_bytes(pack(CONTENT))
    for _ in range(2):
        assert data_file(NAME) == cache / NAME
        assert read(NAME) == CONTENT
    assert (cache / NAME).read_bytes() == CONTENT
    assert files_in(cache) == [cache / NAME]
    assert len(home.requests) == 1


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"1 2 4\n", hashlib.sha256(b"1 2 4\n").hexdigest()),
        (gzip.compress(CONTENT)[:-6], "ended before"),
        (None, "404"),
    ],
    ids=["other content", "cut short", "nothing"],
)
def test_a_failed_download_is_told_and_leaves_nothing(home, folder, cache, sent, says):
    if sent is not None:
        (home.folder / "tiny").write_bytes(sent)
    with pytest.raises(FileError) as caught:
        data_file(NAME)
    assert f"its download from {home.url}/tiny failed" in str(caught.value)
    assert says in str(caught.value)
    assert f"put the file with sha256 {SHA256} " in str(caught.value)
    assert str(folder / NAME) in str(caught.value)
    assert files_in(cache) == []


def test_a_home_that_does_not_answer_is_told(folder, cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # Nothing listens on port 1.
    monkeypatch.setitem(FILES, NAME, Source(SHA256, "http://127.0.0.1:1/tiny"))
    with pytest.raises(FileError, match=r"its download from http://127\.0\.0\.1:1/tiny failed"):
        data_file(NAME)
    assert files_in(cache) == []


def test_without_pooch_a_download_is_refused_with_the_extra_to_install(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileError, match=rf"(?s)pooch.*follmer\[datasets\].*put .*{SHA256}"):
        data_file(NAME)
    assert home.requests == []


def test_without_pooch_files_at_hand_are_read(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    put(folder, CONTENT)
    assert read(NAME) == CONTENT


def test_without_pooch_a_file_without_a_home_is_told_as_ever(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileError, match="no home to download it from"):
        data_file(NAME)


def test_a_file_comes_out_of_an_archive_that_is_fetched_once(home, cache, monkeypatch):
    other = "tiny/other.txt"
    with tarfile.open(home.folder / "all.tar.gz", "w:gz") as archive:
        for name, content in (("a/tiny.txt", CONTENT), ("a/other.txt", b"4\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    url = f"{home.url}/all.tar.gz"
    monkeypatch.setitem(FILES, NAME, Source(SHA256, url, "a/tiny.txt"))
    sha256 = hashlib.sha256(b"4\n").hexdigest()
    monkeypatch.setitem(FILES, other, Source(sha256, url, "a/other.txt"))
    assert read(NAME) == CONTENT
    assert read(other) == b"4\n"
    assert len(home.requests) == 1
    monkeypatch.setitem(FILES, "tiny/none.txt", Source(sha256, url, "a/none.txt"))
    with pytest.raises(FileError, match="tiny/none"):
        read("tiny/none.txt")
