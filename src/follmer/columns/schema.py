"""The columns of a training table, learned once and applied to every other table."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from follmer.columns.cells import DATE_FORMATS, dates, numbers, refuse, truths
from follmer.columns.kinds import (
    AbstractColumn,
    Boolean,
    Categorical,
    Date,
    Features,
    Numeric,
    column_from_json,
)
from follmer.columns.reading import Table
from follmer.errors import InputError, closest

if TYPE_CHECKING:
    import pandas

IGNORE = "ignore"
KINDS = (Numeric.kind, Boolean.kind, Categorical.kind, Date.kind, IGNORE)
# Labels of a column that get a feature each; the others share one.
MOST_LEVELS = 20
# A column of whose cells this share can be read as numbers or dates is meant to be one.
_MEANT = 0.9
# Where the kept labels hold less than this share of the cells, a column says too little.
_COVERED = 0.05
# Text of which this share of cells differ from all others, in at least so many rows, names rows.
_DISTINCT, _FEWEST = 0.9, 20
# Words in the name of a column of numbers that name its rows.
_IDENTIFIERS = {"id", "uid", "uuid", "guid", "index", "idx", "key", "rowid", "identifier", "pk"}


class Dropped(NamedTuple):
    """A column that is left out, and why."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns that are used, and those left out."""

    columns: tuple[AbstractColumn, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def places(self) -> dict[str, slice]:
        """Where each column's features stand."""
        ends = np.cumsum([0, *(len(column.feature_names) for column in self.columns)]).tolist()
        return {column.name: slice(ends[i], ends[i + 1]) for i, column in enumerate(self.columns)}

    def encode(self, table: Table) -> tuple[Features, tuple[str, ...]]:
        """The features of a table's rows, and remarks on what had to be made up."""
        absent = [column.name for column in self.columns if column.name not in table.frame]
        if absent:
            raise InputError(
                f"{table.path} has no column {absent[0]!r}"
                + (f", and {len(absent) - 1} more are missing." if absent[1:] else "."),
                cause=f"its columns are {', '.join(table.names)}",
                hint="the columns that the model was fitted to, by the same names",
            )
        encoded = [one.encode(table.frame[one.name], table.decimal) for one in self.columns]
        features = np.concatenate([one.features for one in encoded], axis=1)
        return features, tuple(remark for one in encoded for remark in one.remarks)

    def strangers(self, table: Table, *, but: str) -> list[str]:
        """Names of the table's columns that the schema does not know."""
        known = {but, *(one.name for one in self.columns), *(one.name for one in self.dropped)}
        return [name for name in table.names if name not in known]

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": [column.as_json() for column in self.columns],
            "dropped": [one._asdict() for one in self.dropped],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Schema":
        columns = tuple(column_from_json(one) for one in fields["columns"])
        return cls(columns, tuple(Dropped(**one) for one in fields["dropped"]))


def learn_schema(
    table: Table, *, target: str, kinds: Mapping[str, str] | None = None
) -> tuple[Schema, tuple[str, ...]]:
    """The schema of all columns but the target, and remarks.

    `kinds` names the kind of some columns; of the others it is told from their cells.
    """
    kinds = dict(kinds or {})
    for name, kind in kinds.items():
        if name not in table.frame or name == target:
            others = [other for other in table.names if other != target]
            raise InputError(f"there is no column {name!r} to use.", hint=closest(name, others))
        if kind not in KINDS:
            raise InputError(f"a column cannot be {kind!r}.", hint=closest(kind, KINDS))
    columns: list[AbstractColumn] = []
    dropped: list[Dropped] = []
    remarks: list[str] = []
    for name in table.names:
        if name == target:
            continue
        found = _column(table.frame[name], kinds.get(name), table.decimal)
        if isinstance(found, Dropped):
            dropped.append(found)
            continue
        columns.append(found)
        remarks += _said(found, table.frame[name])
    if not columns:
        told = "; ".join(f"{one.name}: {one.why}" for one in dropped) or "it holds the target alone"
        raise InputError(
            f"{table.path} has no column to predict {target!r} from ({told}).",
            hint="a column that varies; --column NAME=numeric keeps one that was left out",
        )
    return Schema(tuple(columns), tuple(dropped)), tuple(remarks)


def _column(column: "pandas.Series", kind: str | None, decimal: str) -> AbstractColumn | Dropped:
    name = str(column.name)
    if kind == IGNORE:
        return Dropped(name, "left out as asked")
    if column.isna().all():
        return Dropped(name, "every cell is missing")
    distinct = column.nunique()
    if distinct == 1 and not column.isna().any():
        return Dropped(name, f"constant: every cell is {str(column.dropna().iloc[0])[:40]!r}")
    if kind is None:
        kind = _kind(column, decimal)
        why = _names_rows(column, kind, decimal, distinct)
        if why:
            return Dropped(name, why)
    if kind == Numeric.kind:
        return Numeric.learn(column, decimal)
    if kind == Boolean.kind:
        return Boolean.learn(column)
    if kind == Date.kind:
        return Date.learn(column, _form(column))
    made = Categorical.learn(column, MOST_LEVELS)
    if made.rest and 1.0 - made.shares[-1] < _COVERED:
        return Dropped(name, f"{len(made.levels) + made.rest} categories, all of them rare")
    return made


def _kind(column: "pandas.Series", decimal: str) -> str:
    """What the cells are; raises where most of them, but not all, are numbers or dates."""
    count = int(column.notna().sum())
    if not truths(column).unreadable.any():
        return Boolean.kind
    found = numbers(column, decimal)
    wrong = int(found.unreadable.sum())
    if wrong == 0 and not _is_categorical(column):
        return Numeric.kind
    if _is_text(column):
        keep = f"--column '{column.name}=categorical' takes the cells as labels"
        if wrong < (1.0 - _MEANT) * count:
            refuse(column, found, "a number", f"correct the cell or leave it empty; {keep}")
        found = dates(column, _form(column))
        wrong = int(found.unreadable.sum())
        if 0 < wrong < (1.0 - _MEANT) * count:
            refuse(column, found, "a date as the others are", f"one way of writing dates; {keep}")
    elif not _is_categorical(column):
        found = dates(column, _form(column))
        wrong = int(found.unreadable.sum())
    return Date.kind if wrong == 0 and not _is_categorical(column) else Categorical.kind


def _form(column: "pandas.Series") -> str:
    """The way of writing dates that fits most cells, the first of equals."""
    if not _is_text(column):
        return DATE_FORMATS[0]
    some = column.dropna().iloc[:1000]
    return min(DATE_FORMATS, key=lambda form: int(dates(some, form).unreadable.sum()))


def _names_rows(column: "pandas.Series", kind: str, decimal: str, distinct: int) -> str:
    """Why a column names its rows and says nothing more; "" where it does not."""
    keep = f"--column '{column.name}={kind}' keeps it"
    present = int(column.notna().sum())
    if kind == Categorical.kind:
        many = present >= _FEWEST and distinct >= _DISTINCT * present
        return (
            f"an identifier: {distinct} different texts in {present} rows; {keep}" if many else ""
        )
    if kind != Numeric.kind or distinct < present or present < _FEWEST:
        return ""
    values = numbers(column, decimal).values
    values = values[~np.isnan(values)]
    if np.any(values != np.floor(values)):
        return ""
    in_order = np.all(np.diff(values) == 1) and values[0] in (0, 1)
    words = set(str(column.name).lower().replace("-", "_").replace(" ", "_").split("_"))
    if in_order or words & _IDENTIFIERS:
        return f"an identifier: a different whole number in every row; {keep}"
    return ""


def _said(column: AbstractColumn, cells: "pandas.Series") -> list[str]:
    """What a reader should know of a column that is used."""
    name, said = column.name, []
    missing = int(cells.isna().sum())
    if missing:
        how = {
            Numeric.kind: "taken as the median",
            Boolean.kind: "taken as the share of true",
            Date.kind: "taken as the median",
            Categorical.kind: "taken as an average category",
        }[column.kind]
        if column.tells_missing:
            own = column.kind == Categorical.kind
            how = "a category of their own" if own else f"{how}, and told to the model"
        said.append(f"column {name!r}: {missing} of {len(cells)} cells are missing, {how}")
    if isinstance(column, Categorical) and column.rest:
        said.append(
            f"column {name!r}: of {len(column.levels) + column.rest} categories the "
            f"{len(column.levels)} most frequent are kept, with {1.0 - column.shares[-1]:.0%} of "
            "the cells; the rest are one"
        )
    if isinstance(column, Date) and _is_ambiguous(cells, column.form):
        said.append(f"column {name!r}: dates are read as {column.form}, but could be month first")
    return said


def _is_ambiguous(cells: "pandas.Series", form: str) -> bool:
    if not form.startswith("%d/%m"):
        return False
    return not dates(cells, form.replace("%d/%m", "%m/%d")).unreadable.any()


def _is_text(column: "pandas.Series") -> bool:
    return column.dtype == object or column.dtype.name in ("str", "string", "category")


def _is_categorical(column: "pandas.Series") -> bool:
    return column.dtype.name == "category"
