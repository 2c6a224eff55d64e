"""The column to predict: which task it sets, and its cells as the numbers that models take."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from follmer.columns.cells import labels, numbers, refuse, row_number, truths
from follmer.columns.reading import Table
from follmer.errors import InputError, closest

if TYPE_CHECKING:
    import pandas

REGRESSION, BINARY, MULTICLASS, COUNT = "regression", "binary", "multiclass", "count"
AUTO = "auto"
TASKS = (AUTO, REGRESSION, BINARY, MULTICLASS, COUNT)
# Texts that are classes, and whole numbers that are, at most.
_MOST_CLASSES, _MOST_NUMBERED = 50, 10
# Whole numbers with zeros among them and a mean up to this are counts.
_COUNTED = 50.0
# A share of cells that are numbers, from which a column is meant to hold numbers.
_MEANT = 0.9


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The column that is predicted. The fields are its schema, as files keep it."""

    name: str
    task: str
    why: str  # how the task was told
    classes: tuple[str, ...] = ()

    @property
    def is_classes(self) -> bool:
        return self.task in (BINARY, MULTICLASS)

    def encode(self, column: "pandas.Series", decimal: str = ".") -> np.ndarray:
        """Numbers, or places among the classes; raises where a cell is neither."""
        if not self.is_classes:
            return _as_numbers(column, decimal)
        place = {label: i for i, label in enumerate(self.classes)}
        return np.array([place[label] for label in _labels(column, decimal)], int)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Outcome":
        return cls(**{**fields, "classes": tuple(fields["classes"])})


def learn_outcome(table: Table, name: str, task: str = AUTO) -> Outcome:
    """What the column of that name is to predict; rows without a value must be gone."""
    if task not in TASKS:
        raise InputError(f"there is no task {task!r}.", hint=closest(task, TASKS))
    column = target_column(table, name)
    _check_rows(table, column)
    found = _labels(column, table.decimal)
    counts = Counter(found)
    if len(counts) == 1:
        raise InputError(
            f"column {name!r} holds one value only: every cell is {found[0]!r}.",
            cause="the rows were filtered or sorted before, or the wrong column was named",
            hint="rows of at least two classes, or numbers that vary",
        )
    why = "as asked"
    if task == AUTO:
        task, why = _guess(column, table.decimal, counts)
    if task in (BINARY, MULTICLASS):
        return _classes(name, task, why, counts)
    values = _as_numbers(column, table.decimal)
    if task == COUNT:
        wrong = (values < 0) | (values != np.floor(values))
        if wrong.any():
            place = int(wrong.argmax())
            raise InputError(
                f"row {row_number(column, place)}, column {name!r}: {values[place]:g} is no count.",
                hint="--task regression",
            )
    return Outcome(name, task, why)


def target_column(table: Table, name: str) -> "pandas.Series":
    """The column of that name, or an error that names the nearest."""
    if name in table.frame:
        return table.frame[name]
    bare = [one for one in table.names if _is_number(one)]
    raise InputError(
        f"{table.path} has no column {name!r}.",
        cause="the file has no header row" if len(bare) == len(table.names) else "",
        hint=closest(name, table.names),
    )


def _check_rows(table: Table, column: "pandas.Series") -> None:
    if column.isna().all():
        raise InputError(f"column {column.name!r} has no value in any row of {table.path}.")
    if len(column) < 3:
        raise InputError(
            f"{table.path} has {len(column)} row{'s' * (len(column) > 1)} to learn from.",
            hint="more rows: three at least, and better hundreds",
        )


def _guess(column: "pandas.Series", decimal: str, counts: Counter[str]) -> tuple[str, str]:
    """The task that the cells set, and why."""
    if len(counts) == 2:
        return BINARY, "two values"
    cells = numbers(column, decimal)
    wrong = int(cells.unreadable.sum())
    if wrong and wrong < (1.0 - _MEANT) * len(column):
        refuse(column, cells, "a number", "correct the cell; --task multiclass for labels")
    if wrong:
        return MULTICLASS, f"text of {len(counts)} values"
    values = cells.values
    whole = bool(np.all(values == np.floor(values)) and values.min() >= 0)
    few = len(counts) <= _MOST_NUMBERED and values.min() <= 1
    in_a_row = np.array_equal(np.unique(values), np.arange(values.min(), values.max() + 1))
    rarest, commonest = min(counts.values()), max(counts.values())
    if whole and few and in_a_row and 10 * rarest >= commonest:
        return MULTICLASS, f"{len(counts)} whole numbers in a row, none of them rare"
    if whole and values.min() == 0 and values.mean() <= _COUNTED:
        return COUNT, "whole numbers from 0 on"
    return REGRESSION, "numbers"


def _classes(name: str, task: str, why: str, counts: Counter[str]) -> Outcome:
    if task == BINARY and len(counts) != 2:
        raise InputError(
            f"column {name!r} holds {len(counts)} values; a binary task has two.",
            hint="--task multiclass or --task auto",
        )
    if len(counts) > _MOST_CLASSES:
        raise InputError(
            f"column {name!r} holds {len(counts)} different values, too many for classes "
            f"(at most {_MOST_CLASSES}).",
            cause="an identifier or free text was named as target",
            hint="--task regression for numbers, or rarer classes put together",
        )
    # Numbers by their size, before words.
    numbered = sorted(filter(_is_number, counts), key=float)
    classes = [*numbered, *sorted(label for label in counts if not _is_number(label))]
    return Outcome(name, task, why, tuple(classes))


def _labels(column: "pandas.Series", decimal: str) -> list[str]:
    """Labels under one spelling: 1.0 and 1 are the same, as are True and true."""
    cells = numbers(column, decimal)
    if not cells.unreadable.any():
        return [f"{value:.12g}" for value in cells.values]
    found = [str(label) for label in labels(column)]
    if not truths(column).unreadable.any():
        return [label.lower() for label in found]
    return found


def _as_numbers(column: "pandas.Series", decimal: str) -> np.ndarray:
    cells = numbers(column, decimal)
    refuse(column, cells, "a number", "correct the cell; --task multiclass for labels")
    infinite = np.isinf(cells.values)
    if infinite.any():
        row = row_number(column, int(infinite.argmax()))
        raise InputError(f"row {row}, column {column.name!r}: the number is not finite.")
    return cells.values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
