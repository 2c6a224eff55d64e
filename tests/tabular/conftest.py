"""A small table of all kinds of columns, and a model of it."""

import pytest

from follmer.columns import read_table
from follmer.tabular import fit_table
from small_tables import mixed


@pytest.fixture(scope="session")
def mixed_csv(tmp_path_factory):
    """A CSV file of 120 rows: y rises with x and is higher in the city of a."""
    path = tmp_path_factory.mktemp("tables") / "mixed.csv"
    path.write_text(mixed(120), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def fitted(mixed_csv):
    """A linear model of y."""
    return fit_table(read_table(mixed_csv), "y", model="linear")
