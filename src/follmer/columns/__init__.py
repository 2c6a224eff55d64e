"""Data files as numbers: reading, kinds of columns, a schema learned once and applied again."""

from follmer.columns.outcome import TASKS, Outcome, learn_outcome
from follmer.columns.reading import FORMATS, Table, check_format, read_table, write_table
from follmer.columns.schema import KINDS, Schema, learn_schema

__all__ = [
    "FORMATS",
    "KINDS",
    "TASKS",
    "Outcome",
    "Schema",
    "Table",
    "check_format",
    "learn_outcome",
    "learn_schema",
    "read_table",
    "write_table",
]
