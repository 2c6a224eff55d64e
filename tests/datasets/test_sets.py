"""The sets hold what their descriptions say. Each test is skipped where its files are not."""

import hashlib
import io
import sys

import numpy as np
import pytest
from PIL import Image

from follmer import FileError, InputError, datasets
from follmer.datasets import Dataset, Split, sets
from follmer.datasets.files import data_file, read
from follmer.datasets.registry import FILES

UCI = {
    "boston": (506, 13, 22.533, 9.188),
    "concrete": (1030, 8, 35.818, 16.698),
    "energy": (768, 8, 22.307, 10.084),
    "power": (9568, 4, 454.365, 17.066),
    "protein": (45730, 9, 7.749, 6.118),
    "wine_red": (1599, 11, 5.636, 0.807),
}


MISSING = "its data are not here: set FOLLMER_DATA to the folder that holds them"


def loaded(name):
    """The set, whose files are here whole or not at all."""
    try:
        return datasets.load(name)
    except FileError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip(MISSING)


def here(file):
    try:
        data_file(file)
    except FileError:
        pytest.skip(MISSING)


@pytest.mark.parametrize("file", FILES)
def test_a_files_content_has_the_registered_checksum(file):
    here(file)
    known = FILES[file]
    assert hashlib.sha256(read(file)).hexdigest() in (known.sha256, known.rewritten)


def test_the_names_are_those_that_load_takes():
    uci = tuple(f"uci/{name}" for name in UCI)
    plain = ("a9a", "banana", "mnist", "cifar10", "meg", "indian_pines")
    assert datasets.names() == (*plain, *uci)


@pytest.mark.parametrize("name", ["cifar", "boston", ["a9a"], None])
def test_an_unknown_name_is_told_with_the_options(name):
    with pytest.raises(InputError, match=r"(?s)there is no data set .*cifar10.*uci/boston"):
        datasets.load(name)


def test_a_near_name_is_offered():
    with pytest.raises(InputError, match=r"'cifar10'\?"):
        datasets.load("cifar")


def test_only_sets_whose_upstream_content_is_known_have_homes():
    with_homes = {name.split("/")[0] for name, source in FILES.items() if source.url}
    assert with_homes == {"a9a", "banana", "cifar10", "indian_pines", "mnist", "targets", "uci"}
    for name, source in FILES.items():
        upstream = source.member or (source.url or name).removesuffix(".gz")
        # The tables of regressions are all called alike at home.
        own = "data.txt" if name.startswith("uci/") and source.url else name.split("/")[1]
        assert upstream.endswith(own)


def test_a9a():
    data = loaded("a9a")
    assert (data.x.shape, data.x_test.shape) == ((32561, 123), (16281, 123))
    assert (data.x.dtype, data.y.dtype) == (np.float32, np.int32)
    assert set(np.unique(data.x)) == {0, 1}
    assert (np.count_nonzero(data.x), np.count_nonzero(data.x_test)) == (451592, 225731)
    assert np.bincount(data.y).tolist() == [32561 - 7841, 7841]
    assert np.bincount(data.y_test).tolist() == [16281 - 3846, 3846]
    # The last feature is in one training row only.
    assert (data.x[:, 122].sum(), data.x_test[:, 122].sum()) == (1, 0)


def test_banana():
    data = loaded("banana")
    assert (data.x.shape, data.y.shape) == ((5300, 2), (5300,))
    assert (data.x_test, data.y_test) == (None, None)
    assert np.bincount(data.y).tolist() == [2924, 2376]
    assert data.y[:400].sum() == 217
    np.testing.assert_allclose(data.x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(data.x.std(axis=0), 1, atol=1e-3)


def test_mnist():
    data = loaded("mnist")
    assert (data.x.shape, data.x_test.shape) == ((60000, 28, 28), (10000, 28, 28))
    assert (data.x.dtype, data.y.dtype, data.y_test.shape) == (np.float32, np.int32, (10000,))
    assert (data.x.min(), data.x.max()) == (0, 1)
    assert data.x.mean(dtype=float) == pytest.approx(0.1307, abs=5e-5)
    assert data.x.std(dtype=float) == pytest.approx(0.3081, abs=5e-5)
    assert data.y[:5].tolist() == [5, 0, 4, 1, 9]
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.y).tolist() == counts


def test_meg():
    data = loaded("meg")
    assert data.x.shape == (17730, 10)
    assert (data.y, data.x_test, data.y_test) == (None, None, None)
    assert data.x[0, :3].tolist() == [-48.101, -49.9636, 33.298]
    assert (data.x.min(), data.x.max()) == (-1321.6227, 1420.8143)


def test_indian_pines():
    data = loaded("indian_pines")
    assert (data.x.shape, data.y.shape) == ((145, 145, 200), (145, 145))
    assert (data.x.min(), data.x.max(), data.x.dtype) == (0, 1, np.float32)
    raw = 955 + (9604 - 955) * data.x[0, 0, :5].astype(float)
    np.testing.assert_allclose(raw, [3172, 4142, 4506, 4279, 4782], atol=0.01)
    counts = [46, 1428, 830, 237, 483, 730, 28, 478, 20, 972, 2455, 593, 205, 1265, 386, 93]
    assert np.bincount(data.y.ravel()).tolist() == [10776, *counts]


@pytest.mark.parametrize("name", UCI)
def test_uci(name):
    data = loaded(f"uci/{name}")
    rows, columns, mean, sd = UCI[name]
    assert (data.x.shape, data.y.shape) == ((rows, columns), (rows,))
    assert data.y.mean() == pytest.approx(mean, abs=5.1e-4)
    assert data.y.std() == pytest.approx(sd, abs=5.1e-4)
    assert len(data.splits) == (5 if name == "protein" else 20)
    # The splits of the literature come from this seed.
    rng = np.random.RandomState(1)
    for split in data.splits:
        shuffled = rng.choice(range(rows), rows, replace=False)
        np.testing.assert_array_equal(np.concatenate(split), shuffled)
        assert len(split.train) == round(0.9 * rows)


@pytest.mark.parametrize("name", ["power", "wine_red"])
def test_a_table_as_its_home_has_it(name):
    """Written as text, our values have the checksum of the home's file, and give the same set."""
    data = loaded(f"uci/{name}")
    rows = np.column_stack([data.x, data.y])
    between = {"power": "\t", "wine_red": " "}[name]
    text = "".join(
        between.join(str(int(v)) if v.is_integer() else repr(v) for v in row) + "\n"
        for row in rows.tolist()
    ).encode()
    assert hashlib.sha256(text).hexdigest() == FILES[f"uci/{name}.txt"].sha256
    again = sets.regression_of_table(text)
    np.testing.assert_array_equal(again.x, data.x)
    np.testing.assert_array_equal(again.y, data.y)
    for own, other in zip(again.splits, data.splits, strict=True):
        np.testing.assert_array_equal(np.concatenate(own), np.concatenate(other))
        assert len(own.train) == len(other.train)


def test_the_banana_of_the_benchmarks_begins_with_their_first_training_set():
    scipy_io = pytest.importorskip("scipy.io")
    x, labels = np.arange(12.0).reshape(6, 2), np.array([[1.0], [-1], [1], [-1], [-1], [1]])
    train, test = np.array([[5, 2], [1, 3]]), np.array([[1, 3, 4, 6], [2, 4, 5, 6]])
    file = io.BytesIO()
    fields = {"x": x, "t": labels, "train": train, "test": test}
    scipy_io.savemat(file, {"banana": fields, "heart": fields})
    table = sets.banana_of_benchmarks(file.getvalue())
    assert table[:, 0].tolist() == [8, 2, 0, 4, 6, 10]
    assert table[:, 2].tolist() == [-1, -1, 1, 1, -1, 1]


def test_a_split_divides_the_rows():
    x, y = np.arange(8.0).reshape(4, 2), np.arange(4)
    splits = (Split(np.array([0, 1, 2]), np.array([3])), Split(np.array([3, 1]), np.array([2, 0])))
    data = Dataset(x, y, splits=splits).split(1)
    np.testing.assert_array_equal(data.x, [[6, 7], [2, 3]])
    np.testing.assert_array_equal(data.x_test, [[4, 5], [0, 1]])
    assert (data.y.tolist(), data.y_test.tolist(), data.splits) == ([3, 1], [2, 0], ())
    unlabelled = Dataset(x, splits=splits).split(0)
    assert (unlabelled.x.shape, unlabelled.x_test.shape) == ((3, 2), (1, 2))
    assert unlabelled.y is None


def test_a_split_that_is_not_there_is_told():
    splits = (Split(np.array([0]), np.array([1])),)
    with pytest.raises(InputError, match=r"(?s)there is no split 1.*0 to 0"):
        Dataset(np.zeros(2), np.zeros(2), splits=splits).split(1)
    with pytest.raises(InputError, match="no standard splits"):
        Dataset(np.zeros(2)).split(0)


def test_a_sheet_of_cifar10_is_read_row_by_row():
    """Image i has the colour (i % 256, i // 256, 7)."""
    index = np.arange(10000)
    colours = np.stack([index % 256, index // 256, np.full(10000, 7)], axis=1).astype(np.uint8)
    expected = np.broadcast_to(colours[:, None, None], (10000, 32, 32, 3))
    rows = [np.concatenate(row, axis=1) for row in np.split(expected, 100)]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(rows)).save(file, "WEBP", lossless=True, quality=0, method=0)
    np.testing.assert_array_equal(sets.images_of_sheet(file.getvalue()), expected)


def test_an_original_batch_of_cifar10_has_a_label_and_three_planes():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    planes = [
        bytes([label]) + image.transpose(2, 0, 1).tobytes() for label, image in enumerate(images)
    ]
    pixels, labels = sets.images_of_batch(b"".join(planes))
    np.testing.assert_array_equal(pixels, images)
    assert labels.tolist() == [0, 1]


@pytest.mark.slow
def test_cifar10_is_the_original_byte_for_byte():
    """The upstream batches are 10000 records of a label and three planes of colour."""
    data = loaded("cifar10")
    assert (data.y[:5].tolist(), data.y_test[:5].tolist()) == ([6, 9, 9, 4, 1], [3, 8, 8, 0, 6])
    batches = zip(np.split(data.x, 5), np.split(data.y, 5), strict=True)
    sums = []
    for x, y in [*batches, (data.x_test, data.y_test)]:
        planes = np.rint(x * 255).astype(np.uint8).transpose(0, 3, 1, 2).reshape(len(x), -1)
        records = np.column_stack([y.astype(np.uint8), planes])
        sums.append(hashlib.md5(records.tobytes()).hexdigest())
    assert sums == [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ]


@pytest.mark.parametrize(("name", "package"), [("a9a", "sklearn"), ("cifar10", "PIL")])
def test_a_missing_reader_is_told_with_the_extra_to_install(name, package, monkeypatch):
    here(next(file for file in FILES if file.startswith(name)))
    # A submodule that another test imported would hide that its package is gone.
    for module in [module for module in sys.modules if module.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"(?s)data set {name} needs {package}.*\[datasets\]"):
        datasets.load(name)
