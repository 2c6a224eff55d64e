"""Tables from CSV, TSV and Parquet files, and back."""

import codecs
import csv
import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from follmer.columns.cells import MISSING
from follmer.errors import FileError, InputError, optional_module
from follmer.tools.storage import replacing

if TYPE_CHECKING:
    import pandas

_Rows = TypeVar("_Rows", "pandas.DataFrame", list[list[str]])

_TEXT, _TABS, _PARQUET = (".csv", ".txt"), (".tsv", ".tab"), (".parquet", ".pq")
FORMATS = (*_TEXT, *_TABS, *_PARQUET)
_DELIMITERS = (",", ";", "\t", "|")
# Lines from which the delimiter is told.
_LINES = 100
# UTF-32 begins as UTF-16 does, so it is looked for first.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# What spreadsheets on Windows write where they do not write UTF-8.
_FALLBACK = "cp1252"


class Table(NamedTuple):
    """A table of unread cells: text from CSV, typed values from Parquet, missing cells as NA."""

    frame: "pandas.DataFrame"
    path: Path
    remarks: tuple[str, ...] = ()
    decimal: str = "."

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def rows(self, chosen: np.ndarray) -> "Table":
        """The chosen rows, which keep their numbers."""
        return self._replace(frame=self.frame.iloc[chosen])


def check_format(path: Path) -> None:
    """Raise unless the name ends as one of the formats does."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(
            f"{path.name} does not say what kind of table it is.",
            hint=f"a name that ends in {', '.join(FORMATS)}",
        )


def read_table(path: str | Path, *, encoding: str | None = None) -> Table:
    """The cells of a table, not yet read as numbers.

    Parquet by its suffix; everything else is text, with the delimiter told from the first lines. A
    byte-order mark decides the encoding, else it is UTF-8, else Windows-1252, with a remark.
    """
    path = Path(path)
    check_format(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}.") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error}.") from error
    if path.suffix.lower() in _PARQUET:
        return Table(_parquet(path, content), path)
    text, remarks = _decoded(path, content, encoding)
    delimiter = "\t" if path.suffix.lower() in _TABS else _delimiter(text)
    # Where commas part cells, they cannot also be decimal commas.
    decimal = "." if delimiter == "," else ","
    return Table(_cells(path, text, delimiter), path, remarks, decimal)


def write_table(frame: "pandas.DataFrame", path: str | Path) -> None:
    """Write a table, whole or not at all, in the format of the path's suffix."""
    path = Path(path)
    check_format(path)
    with replacing(path) as file:
        if path.suffix.lower() in _PARQUET:
            _pyarrow()
            frame.to_parquet(file, index=False)
        else:
            delimiter = "\t" if path.suffix.lower() in _TABS else ","
            # As many digits as a 32-bit float has.
            text = frame.to_csv(index=False, sep=delimiter, float_format="%.7g")
            file.write(text.encode())


def _parquet(path: Path, content: bytes) -> "pandas.DataFrame":
    _pyarrow()
    try:
        frame = _pandas().read_parquet(io.BytesIO(content))
    except Exception as error:
        # Foreign bytes fail in pyarrow in many ways; the first one is chained.
        raise FileError(
            f"{path} cannot be read as Parquet: {error}",
            cause="the file was written by something else, or was cut short",
        ) from error
    frame.columns = _names(path, [str(name) for name in frame.columns])
    frame = frame.reset_index(drop=True)
    for name, column in frame.items():
        if column.dtype == object and not column.dropna().map(_is_plain).all():
            bad = column.dropna()[~column.dropna().map(_is_plain)]
            raise InputError(
                f"row {bad.index[0] + 1}, column {name!r}: a cell holds "
                f"{type(bad.iloc[0]).__name__}, not a single value.",
                hint="a table without lists or records in its cells",
            )
    return _with_rows(path, frame)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, list | dict | tuple | np.ndarray | bytes)


def _decoded(path: Path, content: bytes, encoding: str | None) -> tuple[str, tuple[str, ...]]:
    if not content.strip():
        raise InputError(f"{path} is empty.", hint="a table with a header row and rows of data")
    marked = next((name for mark, name in _MARKS.items() if content.startswith(mark)), None)
    remarks: tuple[str, ...] = ()
    try:
        text = content.decode(encoding or marked or "utf-8")
    except LookupError as error:
        raise InputError(f"{encoding!r} is not an encoding that Python knows.") from error
    except UnicodeDecodeError as error:
        if encoding or marked:
            raise InputError(
                f"{path} is not text in {encoding or marked}: {error}.", hint="another --encoding"
            ) from error
        text = content.decode(_FALLBACK, errors="replace")
        remarks = (
            f"{path.name} is not UTF-8 and was read as Windows-1252; --encoding names another",
        )
    if "\0" in text:
        raise InputError(
            f"{path} is not a text table: it holds bytes of value 0.",
            cause="a file of another format, or UTF-16 without a byte-order mark",
            hint="a CSV file; --encoding utf-16",
        )
    return text.removeprefix("\ufeff"), remarks


def _delimiter(text: str) -> str:
    """The delimiter that gives the first lines as many cells as the header, and most of them."""
    start = io.StringIO(text[: 2**20])
    lines = [line for line, _ in zip(start, range(_LINES), strict=False)]

    def fit(delimiter: str) -> tuple[float, int]:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        widths = Counter(map(len, rows))
        header = len(rows[0]) if rows else 1
        return (widths[header] / len(rows) if header > 1 else 0.0), header

    return max(_DELIMITERS, key=fit)


def _cells(path: Path, text: str, delimiter: str) -> "pandas.DataFrame":
    """The cells as text, missing ones as NA; the first row is the header."""
    try:
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        header, *rows = [row for row in lines if row]
    except csv.Error as error:
        raise InputError(
            f"{path} cannot be read as a table: {error}.", cause="a quote is left open"
        ) from error
    names = _names(path, header)
    uneven = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if uneven is not None:
        raise InputError(
            f"row {uneven + 1} of {path} has {len(rows[uneven])} cells; the header has "
            f"{len(names)}.",
            cause="a cell holds the delimiter without quotes, or the file was cut short",
        )
    frame = _pandas().DataFrame(_with_rows(path, rows), columns=names, dtype=object)
    frame = frame.apply(lambda column: column.str.strip())
    return frame.mask(frame.apply(lambda column: column.str.lower().isin(MISSING)))


def _names(path: Path, names: list[str]) -> list[str]:
    """The columns' names without blanks around them; nameless ones are numbered."""
    names = [name.strip() or f"column {place + 1}" for place, name in enumerate(names)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"{path} has several columns named {twice[0]!r}.", hint="one name for each column"
        )
    return names


def _with_rows(path: Path, rows: _Rows) -> _Rows:
    if not len(rows):
        raise InputError(
            f"{path} has a header and no rows.", hint="a table with at least one row of data"
        )
    return rows


def _pandas() -> Any:
    return optional_module("pandas", extra="tables", purpose="reading a table")


def _pyarrow() -> Any:
    return optional_module("pyarrow", extra="tables", purpose="a Parquet file")
