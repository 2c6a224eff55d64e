"""Kinds of columns: what is learned of each, and how it meets a table it has not seen."""

import json

import numpy as np
import pandas
import pytest

from follmer import InputError
from follmer.columns import Schema, learn_schema
from follmer.columns.reading import Table

ROWS = 40


def table(decimal=".", **columns):
    """A table as CSV gives it: text, with None for missing cells."""
    frame = pandas.DataFrame({name: pandas.Series(cells) for name, cells in columns.items()})
    return Table(frame.astype(object), "table.csv", decimal=decimal)


def cycle(*cells):
    return [cells[i % len(cells)] for i in range(ROWS)]


def learned(**columns):
    return learn_schema(table(y=cycle("1", "2"), **columns), target="y")


def kind_of(cells, **options):
    (column,) = learned(a=cells, **options)[0].columns
    return column.kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1.5", "-2e3", "7"], "numeric"),
        (["0", "1", "1"], "numeric"),
        (["yes", "No", "YES"], "boolean"),
        (["true", "false", "false"], "boolean"),
        (["2024-01-31", "2023-12-01", "2024-02-29"], "date"),
        (["2024-01-31T12:00:00Z", "2023-12-01T00:00:00+02:00"], "date"),
        (["31.01.2024", "1.12.2023", "29.02.2024"], "date"),
        (["01/31/2024", "12/01/2023"], "date"),
        (["red", "green", "blue"], "categorical"),
        (["A1", "2", "B3"], "categorical"),
    ],
)
def test_the_kind_is_told_from_the_cells(cells, kind):
    assert kind_of(cycle(*cells)) == kind


def test_typed_columns_keep_their_kind():
    frame = pandas.DataFrame(
        {
            "n": np.linspace(0, 1, ROWS),
            "b": cycle(True, False),
            "d": pandas.date_range("2024-01-01", periods=ROWS),
            "t": pandas.to_timedelta(cycle(1, 2, 3), unit="h"),
            "c": pandas.Categorical(cycle("1", "2", "3")),
            "y": cycle(1, 2),
        }
    )
    schema, _ = learn_schema(Table(frame, "t.parquet"), target="y")
    kinds = ["numeric", "boolean", "date", "numeric", "categorical"]
    assert [one.kind for one in schema.columns] == kinds


def test_text_in_a_numeric_column_is_told_by_row_and_column():
    cells = [str(i * 1.5) for i in range(ROWS)]
    cells[16] = "abc"
    with pytest.raises(InputError, match="row 17, column 'a': 'abc' is not a number") as error:
        learned(a=cells)
    assert "--column 'a=categorical'" in str(error.value)
    assert f"39 of the column's {ROWS} cells" in str(error.value)


def test_text_among_dates_is_told_by_row_and_column():
    cells = [f"2024-01-{1 + i % 28:02d}" for i in range(ROWS)]
    cells[3] = "soon"
    with pytest.raises(InputError, match="row 4, column 'a': 'soon' is not a date"):
        learned(a=cells)


def test_numbers_that_are_not_finite_are_told():
    with pytest.raises(InputError, match="row 2, column 'a': the number is not finite"):
        learned(a=cycle("1", "inf", "2"))


def test_decimal_commas_are_read_where_commas_part_no_cells():
    found, _ = learn_schema(table(",", a=cycle("1,5", "2"), y=cycle("1", "2")), target="y")
    features, _ = found.encode(table(",", a=["2,5", "1.5"]))
    np.testing.assert_array_equal(features[:, 0], [2.5, 1.5])


def test_columns_that_say_nothing_are_left_out_and_told():
    schema, _ = learned(
        x=cycle("1", "2", "3"),
        constant=["EU"] * ROWS,
        empty=[None] * ROWS,
        code=[f"k{i}" for i in range(ROWS)],
        number=[str(i + 1) for i in range(ROWS)],
        customer_id=[str(7 * i + 100) for i in range(ROWS)],
        wage=[str(7 * i + 100) for i in range(ROWS)],
    )
    assert [one.name for one in schema.columns] == ["x", "wage"]
    why = dict(schema.dropped)
    assert "constant" in why["constant"]
    assert "missing" in why["empty"]
    assert all("identifier" in why[name] for name in ("code", "number", "customer_id"))
    assert "--column 'code=categorical'" in why["code"]


def test_a_kind_that_is_asked_for_is_kept():
    cells = {"code": [f"k{i}" for i in range(ROWS)], "zip": cycle("1", "2", "3")}
    kinds = {"code": "ignore", "zip": "categorical"}
    schema, _ = learn_schema(table(y=cycle("1", "2"), **cells), target="y", kinds=kinds)
    assert [(one.name, one.kind) for one in schema.columns] == [("zip", "categorical")]
    assert schema.dropped[0].why == "left out as asked"
    with pytest.raises(InputError, match="no column 'zap'"):
        learn_schema(table(y=cycle("1", "2"), **cells), target="y", kinds={"zap": "numeric"})
    with pytest.raises(InputError, match="cannot be 'number'"):
        learn_schema(table(y=cycle("1", "2"), **cells), target="y", kinds={"zip": "number"})


def test_a_table_without_a_usable_column_is_told():
    with pytest.raises(InputError, match=r"no column to predict 'y' from \(a: constant"):
        learned(a=["1"] * ROWS)


def test_ten_thousand_categories_are_kept_in_part_or_left_out():
    rare = [str(i // 2) + "x" for i in range(20_000)]
    rows = 20_000
    mostly = ["one" if i % 2 else f"{i}x" for i in range(rows)]
    both = table(rare=rare, mostly=mostly, y=["1", "2"] * (rows // 2))
    schema, remarks = learn_schema(both, target="y")
    assert dict(schema.dropped)["rare"] == "10000 categories, all of them rare"
    (kept,) = schema.columns
    assert len(kept.feature_names) == 21
    assert "of 10001 categories the 20 most frequent are kept, with 50%" in remarks[0]


def test_missing_cells_are_made_up_and_told():
    schema, remarks = learned(a=cycle("1", "3", None, "8"), c=cycle("u", "v", "w", None))
    assert any("'a': 10 of 40 cells are missing, taken as the median" in one for one in remarks)
    assert any("'c': 10 of 40 cells are missing, a category of their own" in one for one in remarks)
    features, told = schema.encode(table(a=[None, "5"], c=["v", None]))
    assert schema.feature_names == (
        *("a", "a is missing", "c = u", "c = v", "c = w", "c is missing"),
    )
    np.testing.assert_array_equal(features, [[3, 1, 0, 1, 0, 0], [5, 0, 0, 0, 0, 1]])
    assert "'a': 1 cell is missing, taken as 3" in told[0]


def test_what_was_never_missing_in_training_is_taken_as_an_average():
    schema, _ = learned(a=cycle("1", "3"), b=cycle("yes", "no", "no", "no"), c=cycle(*"uvww"))
    features, told = schema.encode(table(a=[None], b=[None], c=[None]))
    np.testing.assert_allclose(features, [[2.0, 0.25, 0.25, 0.25, 0.5]])
    assert len(told) == 3


def test_unseen_categories_are_an_average_one_and_told():
    schema, _ = learned(c=cycle("u", "v", "w", "w"))
    features, told = schema.encode(table(c=["new", "u"]))
    np.testing.assert_allclose(features, [[0.25, 0.25, 0.5], [1, 0, 0]])
    assert "1 cell is of categories that no training row has ('new')" in told[0]


def test_unseen_categories_join_the_rest_where_there_is_one():
    cells = [f"c{i // 4}" for i in range(4 * 30)]
    both = table(c=cells, y=["1", "2"] * 60)
    schema, _ = learn_schema(both, target="y")
    features, told = schema.encode(table(c=["new"]))
    assert features[0].tolist() == [0.0] * 20 + [1.0]
    assert told == ()


def test_numbers_outside_the_training_range_are_told():
    schema, _ = learned(a=cycle("1", "3"))
    assert "outside 1 to 3" in schema.encode(table(a=["7"]))[1][0]


def test_dates_become_days_and_places_on_circles():
    days = pandas.date_range("2023-01-01", periods=ROWS, freq="20D").strftime("%Y-%m-%d")
    schema, _ = learned(d=list(days))
    features, _ = schema.encode(table(d=["2023-01-02", "2023-01-09"]))
    assert schema.feature_names[0] == "d in days"
    np.testing.assert_allclose(features[:, 0], [1, 8])
    # A week apart: the same place in the week, another in the year.
    week, year = slice(3, 5), slice(1, 3)
    np.testing.assert_allclose(features[0, week], features[1, week], atol=1e-9)
    assert np.abs(features[0, year] - features[1, year]).max() > 0.01
    np.testing.assert_allclose(np.square(features[:, year]).sum(1), 1.0)


def test_dates_that_could_be_month_first_are_told():
    _, remarks = learned(d=cycle("01/02/2024", "03/04/2023"))
    assert "could be month first" in remarks[0]


def test_a_new_table_must_have_the_columns():
    schema, _ = learned(a=cycle("1", "3"), b=cycle("1", "2", "4"))
    with pytest.raises(InputError, match="no column 'b'"):
        schema.encode(table(a=["1"]))
    assert schema.strangers(table(a=["1"], b=["1"], c=["1"], y=["1"]), but="y") == ["c"]


def test_a_schema_comes_back_from_json():
    schema, _ = learned(
        a=cycle("1", "3"),
        b=cycle("yes", None),
        c=cycle("u", "v"),
        d=cycle("2024-01-01", "2020-02-03"),
        e=["1"] * ROWS,
    )
    assert Schema.from_json(json.loads(json.dumps(schema.as_json()))) == schema
