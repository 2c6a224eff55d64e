"""The data sets by name, and how each is read."""

import functools
import io
from collections.abc import Callable

import numpy as np
from jaxtyping import Float32, Float64, Int32, UInt8

from follmer.datasets.dataset import Dataset, Split
from follmer.datasets.files import is_there, read
from follmer.datasets.registry import FILES
from follmer.errors import InputError, closest, optional_module
from follmer.tools.checks import options_checked


@options_checked
def load(name: str) -> Dataset:
    """The data set of that name (see `names`), every file checked against its sha256.

    Files are looked for in the folder that the environment variable `FOLLMER_DATA` names and in the
    user's cache; those with a public home are downloaded into the cache where they are missing.
    """
    if not isinstance(name, str) or name not in SETS:
        raise InputError(f"there is no data set {name!r}.", hint=closest(str(name), SETS))
    return SETS[name]()


def names() -> tuple[str, ...]:
    """The names that `load` takes."""
    return tuple(SETS)


def _a9a() -> Dataset:
    """Adult income: 123 binary features, labels 0 and 1."""
    reader = optional_module("sklearn.datasets", extra="datasets", purpose="the data set a9a")

    def part(name: str) -> tuple[Float32[np.ndarray, "rows 123"], Int32[np.ndarray, " rows"]]:
        x, signs = reader.load_svmlight_file(
            io.BytesIO(read(name)), n_features=123, dtype=np.float32
        )
        return x.toarray(), (signs > 0).astype(np.int32)

    return Dataset(*part("a9a/a9a"), *part("a9a/a9a.t"))


def _banana() -> Dataset:
    """Two banana-shaped classes in the plane, labels 0 and 1.

    From a table where it is there, else from the benchmarks that it belongs to: the same points, of
    which all but the first 400 stand in another order.
    """
    if is_there("banana/banana.csv"):
        table = np.loadtxt(io.BytesIO(read("banana/banana.csv")), delimiter=",", skiprows=1)
    else:
        table = banana_of_benchmarks(read("banana/benchmarks.mat"))
    return Dataset(table[:, :2], (table[:, 2] > 0).astype(np.int32))


def _mnist() -> Dataset:
    """Digits of 28 × 28 pixels in [0, 1]."""

    def part(name: str) -> tuple[Float32[np.ndarray, "rows 28 28"], Int32[np.ndarray, " rows"]]:
        pixels = _idx(read(f"mnist/{name}-images-idx3-ubyte"))
        labels = _idx(read(f"mnist/{name}-labels-idx1-ubyte"))
        return pixels / np.float32(255), labels.astype(np.int32)

    return Dataset(*part("train"), *part("t10k"))


def _cifar10() -> Dataset:
    """Photographs of ten classes, 32 × 32 pixels of three colours in [0, 1].

    From lossless sheets of images where they are there, else from the original batches.
    """
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    if is_there("cifar10/labels.npz"):
        train = np.concatenate([images_of_sheet(read(f"cifar10/{one}.webp")) for one in batches])
        test = images_of_sheet(read("cifar10/test_batch.webp"))
        labels = _npz("cifar10/labels.npz")
        known, known_test = labels["train"], labels["test"]
    else:
        parts = [images_of_batch(read(f"cifar10/{one}.bin")) for one in batches]
        train, known = (np.concatenate(part) for part in zip(*parts, strict=True))
        test, known_test = images_of_batch(read("cifar10/test_batch.bin"))
    return Dataset(
        train / np.float32(255),
        known.astype(np.int32),
        test / np.float32(255),
        known_test.astype(np.int32),
    )


def _meg() -> Dataset:
    """A magnetoencephalogram: one row per sample in time, one column for each of ten channels."""
    return Dataset(np.ascontiguousarray(_npz("meg/MEG_art_10ch.npz")["X"].T))


def _indian_pines() -> Dataset:
    """A hyperspectral image, rows × columns × bands, and its ground truth (0: unlabelled).

    Scaled to [0, 1] by the least and the greatest value of the whole cube.
    """
    import scipy.io

    def variable(file: str, name: str) -> np.ndarray:
        return scipy.io.loadmat(io.BytesIO(read(f"indian_pines/{file}.mat")))[name]

    cube = variable("Indian_pines_corrected", "indian_pines_corrected").astype(np.float32)
    truth = variable("Indian_pines_gt", "indian_pines_gt").astype(np.int32)
    return Dataset((cube - cube.min()) / np.ptp(cube), truth)


def _uci(name: str) -> Dataset:
    """A regression with its standard splits, unscaled.

    From table and splits in one file where it is there, else from the table that the authors of the
    splits distribute.
    """
    if not is_there(f"uci/{name}.npz") and f"uci/{name}.txt" in FILES:
        return regression_of_table(read(f"uci/{name}.txt"))
    file = _npz(f"uci/{name}.npz")
    splits = zip(file["train_idx"].astype(np.int32), file["test_idx"].astype(np.int32), strict=True)
    table = file["data"]
    return Dataset(
        table[:, file["features"]],
        table[:, file["target"]],
        splits=tuple(Split(*split) for split in splits),
    )


def regression_of_table(content: bytes) -> Dataset:
    """A table of numbers, the target last, with the twenty splits of the literature."""
    table = np.loadtxt(io.BytesIO(content))
    # The authors' own seed and rule, which give their files of indices again.
    rng, count = np.random.RandomState(1), len(table)
    orders = [rng.choice(count, count, replace=False).astype(np.int32) for _ in range(_NUM_SPLITS)]
    splits = tuple(Split(*np.split(order, [round(0.9 * count)])) for order in orders)
    return Dataset(table[:, :-1], table[:, -1], splits=splits)


def banana_of_benchmarks(content: bytes) -> Float64[np.ndarray, "rows 3"]:
    """Points and labels ±1 of a MATLAB file of benchmarks, the first training set first."""
    import scipy.io

    x, labels, train, _ = scipy.io.loadmat(io.BytesIO(content))["banana"][0][0]
    first = train[0].astype(int) - 1
    order = np.concatenate([first, np.setdiff1d(np.arange(len(x)), first)])
    return np.column_stack([x, labels])[order]


def images_of_sheet(content: bytes) -> UInt8[np.ndarray, "10000 32 32 3"]:
    """CIFAR10's images, of which a sheet holds a hundred rows of a hundred."""
    images = optional_module("PIL.Image", extra="datasets", purpose="the data set cifar10")
    with images.open(io.BytesIO(content), formats=["WEBP"]) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    return pixels.reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)


def images_of_batch(
    content: bytes,
) -> tuple[UInt8[np.ndarray, "rows 32 32 3"], UInt8[np.ndarray, " rows"]]:
    """CIFAR10's own batches: a byte for the label, then three planes of colour."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _idx(content: bytes) -> np.ndarray:
    """The idx format: byte 3 counts the axes, whose lengths follow as big-endian integers."""
    num_axes = content[3]
    shape = np.frombuffer(content, ">u4", num_axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


def _npz(name: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(read(name)), allow_pickle=False) as file:
        return dict(file)


_NUM_SPLITS = 20
_UCI = ("boston", "concrete", "energy", "power", "protein", "wine_red")

SETS: dict[str, Callable[[], Dataset]] = {
    "a9a": _a9a,
    "banana": _banana,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "meg": _meg,
    "indian_pines": _indian_pines,
    **{f"uci/{name}": functools.partial(_uci, name) for name in _UCI},
}
