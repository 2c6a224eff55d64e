"""Kinds of columns: what each learns from the training rows, and the numbers it becomes."""

import abc
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from follmer.columns.cells import Cells, dates, labels, numbers, refuse, row_number, truths
from follmer.errors import InputError

if TYPE_CHECKING:
    import pandas

# Share of missing cells from which it is told to the model that a cell was missing.
_WORTH_TELLING = 0.01
# Days of a year and of a week, and the span of training dates from which each is a cycle.
_YEAR, _WEEK = 365.2425, 7.0
_SPAN = {_YEAR: 180.0, _WEEK: 14.0}

Features = Float[np.ndarray, "rows features"]


class Encoded(NamedTuple):
    """A column as numbers, and what a reader should know of how they came about."""

    features: Features
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class AbstractColumn(abc.ABC):
    """A column of the training table. The fields are its schema, as files keep it."""

    kind: ClassVar[str]
    name: str
    missing: float  # the share of missing cells in training

    @abc.abstractmethod
    def features_of(self, values: np.ndarray) -> Features:
        """The features of values that are read: numbers, days or labels; nan or None is missing."""

    @abc.abstractmethod
    def encode(self, column: "pandas.Series", decimal: str = ".") -> Encoded:
        """The features of cells; an error names row and column of one that cannot be read."""

    @property
    @abc.abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """One name for each feature."""

    @property
    def tells_missing(self) -> bool:
        """Whether a feature says that a cell was missing."""
        return self.missing >= _WORTH_TELLING

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}

    def _with_missing(self, values: np.ndarray, *features: np.ndarray) -> Features:
        told = [np.isnan(values)] if self.tells_missing else []
        return np.column_stack([*features, *told]).astype(float)

    def _names(self, *names: str) -> tuple[str, ...]:
        return (*names, f"{self.name} is missing") if self.tells_missing else names

    def _imputed(self, count: int, by: str) -> tuple[str, ...]:
        return (f"column {self.name!r}: {_cells(count)} missing, {by}",) if count else ()


@dataclasses.dataclass(frozen=True)
class Numeric(AbstractColumn):
    """A number; a missing one is the training rows' median."""

    kind: ClassVar[str] = "numeric"
    median: float
    low: float
    high: float

    @classmethod
    def learn(cls, column: "pandas.Series", decimal: str = ".") -> "Numeric":
        values = _numbers(column, decimal)
        told = values[~np.isnan(values)]
        share = float(np.isnan(values).mean())
        return cls(str(column.name), share, *map(float, (np.median(told), told.min(), told.max())))

    def encode(self, column: "pandas.Series", decimal: str = ".") -> Encoded:
        values = _numbers(column, decimal)
        remarks = self._imputed(
            int(np.isnan(values).sum()), f"taken as {self.median:g}, the median"
        )
        outside = int(((values < self.low) | (values > self.high)).sum())
        if outside:
            remarks += (
                f"column {self.name!r}: {_cells(outside)} outside {self.low:g} to {self.high:g}, "
                "the range of the training rows",
            )
        return Encoded(self.features_of(values), remarks)

    def features_of(self, values: np.ndarray) -> Features:
        return self._with_missing(values, np.where(np.isnan(values), self.median, values))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self._names(self.name)


@dataclasses.dataclass(frozen=True)
class Boolean(AbstractColumn):
    """Yes or no; a missing one is the share of yes in the training rows."""

    kind: ClassVar[str] = "boolean"
    share: float

    @classmethod
    def learn(cls, column: "pandas.Series", decimal: str = ".") -> "Boolean":
        values = _truths(column)
        return cls(str(column.name), float(np.isnan(values).mean()), float(np.nanmean(values)))

    def encode(self, column: "pandas.Series", decimal: str = ".") -> Encoded:
        values = _truths(column)
        remarks = self._imputed(int(np.isnan(values).sum()), f"taken as {self.share:.0%} true")
        return Encoded(self.features_of(values), remarks)

    def features_of(self, values: np.ndarray) -> Features:
        return self._with_missing(values, np.where(np.isnan(values), self.share, values))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self._names(self.name)


@dataclasses.dataclass(frozen=True)
class Date(AbstractColumn):
    """A date: days since the first one, and its place in the year, the week and the day.

    Places are points on a circle, so that December is next to January; each is there where the
    training dates go round it.
    """

    kind: ClassVar[str] = "date"
    form: str
    first: float  # in days since 1970
    last: float
    median: float
    cycles: tuple[float, ...]  # in days

    @classmethod
    def learn(cls, column: "pandas.Series", form: str) -> "Date":
        values = _dates(column, form)
        told = values[~np.isnan(values)]
        first, last, median = map(float, (told.min(), told.max(), np.median(told)))
        cycles = [cycle for cycle, span in _SPAN.items() if last - first >= span]
        if np.any(told != np.floor(told)):
            cycles.append(1.0)
        share = float(np.isnan(values).mean())
        return cls(str(column.name), share, form, first, last, median, tuple(cycles))

    def encode(self, column: "pandas.Series", decimal: str = ".") -> Encoded:
        values = _dates(column, self.form)
        day = np.datetime64(0, "D") + int(self.median)
        remarks = self._imputed(int(np.isnan(values).sum()), f"taken as {day}, the median")
        outside = int(((values < self.first) | (values > self.last)).sum())
        if outside:
            remarks += (f"column {self.name!r}: {_cells(outside)} outside the training dates",)
        return Encoded(self.features_of(values), remarks)

    def features_of(self, values: np.ndarray) -> Features:
        filled = np.where(np.isnan(values), self.median, values)
        turns = [2.0 * np.pi * filled / cycle for cycle in self.cycles]
        circles = [circle(turn) for turn in turns for circle in (np.sin, np.cos)]
        return self._with_missing(values, filled - self.first, *circles)

    @property
    def feature_names(self) -> tuple[str, ...]:
        parts = {_YEAR: "year", _WEEK: "week", 1.0: "day"}
        circles = [
            f"{self.name} {circle} of {parts[cycle]}"
            for cycle in self.cycles
            for circle in ("sine", "cosine")
        ]
        return self._names(f"{self.name} in days", *circles)


@dataclasses.dataclass(frozen=True)
class Categorical(AbstractColumn):
    """One of several labels, a feature for each; two labels share one feature.

    The most frequent labels of the training rows are kept, the rest are one more. A label that was
    never seen counts as the rest, or as the average of all labels where there is no rest.
    """

    kind: ClassVar[str] = "categorical"
    levels: tuple[str, ...]
    shares: tuple[float, ...]  # of the levels, then of the rest, among cells that are not missing
    rest: int  # how many labels beyond the levels

    @classmethod
    def learn(cls, column: "pandas.Series", most: int) -> "Categorical":
        found = labels(column)
        counts = Counter(label for label in found if label is not None)
        # Equally frequent ones by the alphabet, so that the order of rows does not matter.
        ranked = sorted(counts, key=lambda label: (-counts[label], label))
        kept = ranked if len(ranked) <= most else ranked[:most]
        total = sum(counts.values())
        levels = tuple(sorted(kept))
        shares = [counts[level] / total for level in levels]
        share = sum(label is None for label in found) / len(found)
        rest = len(ranked) - len(kept)
        return cls(str(column.name), share, levels, (*shares, 1.0 - sum(shares)), rest)

    def encode(self, column: "pandas.Series", decimal: str = ".") -> Encoded:
        found = labels(column)
        unknown = self._places(found) < 0
        missing = np.array([label is None for label in found])
        remarks: tuple[str, ...] = ()
        if missing.any():
            by = "a category of its own" if self.tells_missing else "taken as an average category"
            remarks += self._imputed(int(missing.sum()), by)
        unseen = unknown & ~missing
        if unseen.any() and not self.rest:
            some = sorted(set(found[unseen]))
            told = ", ".join(map(repr, some[:3])) + (", …" if len(some) > 3 else "")
            remarks += (
                f"column {self.name!r}: {_cells(int(unseen.sum()))} of categories that no training "
                f"row has ({told}), taken as an average category",
            )
        return Encoded(self.features_of(found), remarks)

    def features_of(self, values: np.ndarray) -> Features:
        places = self._places(values)
        missing = np.array([value is None for value in values], bool)
        columns = len(self.levels) + bool(self.rest)
        features = np.zeros((len(values), columns))
        known = places >= 0
        features[known, places[known]] = 1.0
        features[~known] = self.shares[:columns]
        if self.rest:
            features[~known & ~missing] = np.eye(columns)[-1]
        if self.tells_missing:
            features[missing] = 0.0
            return np.column_stack([features, missing])
        return features[:, 1:] if columns == 2 else features

    def _places(self, values: np.ndarray) -> np.ndarray:
        """Each label's place among the levels, −1 for others."""
        place = {level: i for i, level in enumerate(self.levels)}
        return np.array([place.get(value, -1) for value in values], int)

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = [f"{self.name} = {level}" for level in self.levels]
        names += [f"{self.name} is another"] if self.rest else []
        if self.tells_missing:
            return self._names(*names)
        return tuple(names[1:] if len(names) == 2 else names)


_KINDS: dict[str, type[AbstractColumn]] = {
    one.kind: one for one in (Numeric, Boolean, Categorical, Date)
}


def column_from_json(fields: dict[str, Any]) -> AbstractColumn:
    """The column whose `as_json` this is."""
    fields = dict(fields)
    kind = _KINDS[fields.pop("kind")]
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return kind(**{**fields, **lists})


def _numbers(column: "pandas.Series", decimal: str) -> np.ndarray:
    cells = numbers(column, decimal)
    hint = f"correct the cell or leave it empty; --column '{column.name}=categorical' for labels"
    refuse(column, cells, "a number", hint)
    infinite = np.isinf(cells.values)
    if infinite.any():
        row = row_number(column, int(infinite.argmax()))
        raise InputError(
            f"row {row}, column {column.name!r}: the number is not finite.",
            hint="leave the cell empty where the number is not known",
        )
    return cells.values


def _truths(column: "pandas.Series") -> np.ndarray:
    cells: Cells = truths(column)
    hint = f"correct the cell or leave it empty; --column '{column.name}=categorical' for labels"
    refuse(column, cells, "true or false", hint)
    return cells.values


def _dates(column: "pandas.Series", form: str) -> np.ndarray:
    cells = dates(column, form)
    hint = f"dates as 2024-12-31; --column '{column.name}=ignore' leaves the column out"
    refuse(column, cells, f"a date as the others are ({form})", hint)
    return cells.values


def _cells(count: int) -> str:
    return "1 cell is" if count == 1 else f"{count} cells are"
