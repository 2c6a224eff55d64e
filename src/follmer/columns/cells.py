"""Cells read as numbers, truth values, dates or labels, and which of them cannot be."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from follmer.errors import InputError

if TYPE_CHECKING:
    import pandas

# Texts that stand for a missing cell, in lower case.
MISSING = frozenset(
    ["", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "?", "-", ".", "#null!"]
)
_TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "t": 1.0, "f": 0.0}
# Year first, then what is written by hand; a column has one of them throughout.
ISO = "ISO8601"
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%d %b %Y", "%b %d, %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")
DATE_FORMATS = (ISO, *(date + time for date in _DATES for time in _TIMES))


class Cells(NamedTuple):
    """Values of a column, with nan or NaT where a cell is missing or cannot be read."""

    values: np.ndarray
    unreadable: np.ndarray  # of bools

    @property
    def missing(self) -> np.ndarray:
        return np.asarray(np.isnan(self.values)) & ~self.unreadable


def numbers(column: "pandas.Series", decimal: str = ".") -> Cells:
    """The cells as floats; lengths of time in days."""
    import pandas

    present = column.notna().to_numpy()
    if pandas.api.types.is_datetime64_any_dtype(column.dtype):
        return Cells(np.full(len(column), np.nan), present)
    if pandas.api.types.is_timedelta64_dtype(column.dtype):
        column = column / pandas.Timedelta(days=1)
    elif not pandas.api.types.is_numeric_dtype(column.dtype):
        column = column.astype(object)
        plain = pandas.to_numeric(column, errors="coerce")
        if decimal != "." and plain.notna().to_numpy().sum() < present.sum():
            text = column.astype(str).str.replace(decimal, ".", regex=False)
            with_decimal = pandas.to_numeric(text.where(present), errors="coerce")
            plain = with_decimal if with_decimal.notna().sum() > plain.notna().sum() else plain
        column = plain
    values = column.astype("Float64").to_numpy(float, na_value=np.nan)
    return Cells(values, present & np.isnan(values))


def truths(column: "pandas.Series") -> Cells:
    """True and yes as 1, false and no as 0, whatever the case."""
    import pandas

    present = column.notna().to_numpy()
    if pandas.api.types.is_bool_dtype(column.dtype):
        values = column.astype("boolean").astype("Float64").to_numpy(float, na_value=np.nan)
    else:
        values = column.astype(str).str.lower().map(_TRUTHS).to_numpy(float)
    return Cells(np.where(present, values, np.nan), present & np.isnan(values))


def dates(column: "pandas.Series", form: str) -> Cells:
    """The cells as days since 1970, UTC; `form` is one of DATE_FORMATS."""
    import pandas

    present = column.notna().to_numpy()
    if pandas.api.types.is_numeric_dtype(column.dtype):
        return Cells(np.full(len(column), np.nan), present)
    if not pandas.api.types.is_datetime64_any_dtype(column.dtype):
        column = column.astype(object).where(column.notna(), None)
    moments = pandas.to_datetime(column, format=form, errors="coerce", utc=True)
    since = moments - pandas.Timestamp(0, tz="UTC")
    values = (since / pandas.Timedelta(days=1)).to_numpy(float)
    return Cells(values, present & np.isnan(values))


def labels(column: "pandas.Series") -> np.ndarray:
    """The cells as text, whole numbers without a point; None where a cell is missing."""
    import pandas

    present = column.notna().to_numpy()
    if pandas.api.types.is_bool_dtype(column.dtype):
        column = column.astype(str).str.lower()
    elif pandas.api.types.is_numeric_dtype(column.dtype):
        column = column.map(lambda value: f"{value:.12g}", na_action="ignore")
    found = column.astype(str).to_numpy(object)
    found[~present] = None
    return found


def refuse(column: "pandas.Series", cells: Cells, wanted: str, hint: str) -> None:
    """Raise an error that names row and column of the first cell that cannot be read."""
    if not cells.unreadable.any():
        return
    place = int(cells.unreadable.argmax())
    readable = int(np.sum(~np.isnan(cells.values)))
    total = readable + int(cells.unreadable.sum())
    raise InputError(
        f"row {row_number(column, place)}, column {column.name!r}: "
        f"{str(column.iloc[place])[:60]!r} is not {wanted}.",
        cause=f"{readable} of the column's {total} cells are, so this one looks like a slip"
        if 2 * readable >= total
        else f"{total - readable} of the column's {total} cells are not: it holds something else",
        hint=hint,
    )


def row_number(column: "pandas.Series", place: int) -> int:
    """The row's number in its file, the header not counted."""
    return int(column.index[place]) + 1
