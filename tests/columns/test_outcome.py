"""The column to predict: tasks guessed and asked for, and what cannot be predicted."""

import json

import numpy as np
import pandas
import pytest

from follmer import InputError
from follmer.columns import Outcome, learn_outcome
from follmer.columns.reading import Table

ROWS = 60


def outcome(cells, task="auto", name="y"):
    cells = [cells[i % len(cells)] for i in range(ROWS)]
    return learn_outcome(Table(pandas.DataFrame({"y": cells}), "t.csv"), name, task)


@pytest.mark.parametrize(
    ("cells", "task"),
    [
        (["1.5", "2.25", "7"], "regression"),
        (["-1", "2", "7"], "regression"),
        (["100", "250", "731"], "regression"),
        (["0", "1"], "binary"),
        (["yes", "no"], "binary"),
        (["a", "b"], "binary"),
        ([True, False], "binary"),
        (["a", "b", "c"], "multiclass"),
        (["0", "1", "2"], "multiclass"),
        (["1", "2", "3", "4"], "multiclass"),
        (["0", "3", "7", "20"], "count"),
        (["0"] * 15 + ["1"] * 3 + ["2"], "count"),
    ],
)
def test_the_task_is_told_from_the_cells(cells, task):
    assert outcome(cells).task == task


def test_a_task_that_is_asked_for_is_taken():
    assert outcome(["0", "1", "2"], "count").task == "count"
    assert outcome(["0", "1", "2"], "regression").task == "regression"
    assert outcome(["3", "4"], "multiclass").classes == ("3", "4")


def test_classes_are_sorted_as_numbers_and_as_words():
    assert outcome(["10", "9", "8.0"], "multiclass").classes == ("8", "9", "10")
    assert outcome(["Yes", "no"]).classes == ("no", "yes")
    assert outcome(["b", "a", "C"]).classes == ("C", "a", "b")


def test_cells_become_places_among_the_classes():
    found = outcome(["low", "mid", "high"])
    places = found.encode(pandas.Series(["mid", "high"], name="y"))
    assert [found.classes[place] for place in places] == ["mid", "high"]
    np.testing.assert_array_equal(outcome(["1.5", "2", "9"]).encode(pandas.Series(["4"])), [4.0])


@pytest.mark.parametrize(
    ("cells", "task", "says"),
    [
        (["1"], "auto", "one value only"),
        (["a"], "binary", "one value only"),
        (["a", "b", "c"], "binary", "a binary task has two"),
        (["1", "2", "x"], "regression", "row 3, column 'y': 'x' is not a number"),
        (["a", "b", "3"], "regression", "40 of the column's 60 cells are not"),
        ([*map(str, range(100, 159)), "oops"], "auto", "row 60, column 'y': 'oops' is not a num"),
        ([f"t{i}" for i in range(60)], "auto", "60 different values, too many for classes"),
        (["1", "-2", "3"], "count", "row 2, column 'y': -2 is no count"),
        (["1", "inf", "3"], "regression", "row 2, column 'y': the number is not finite"),
        (["1", "2"], "guess", "there is no task 'guess'"),
        ([None], "auto", "no value in any row"),
    ],
)
def test_what_cannot_be_predicted_is_told(cells, task, says):
    with pytest.raises(InputError, match=says):
        outcome(cells, task)


def test_a_target_that_is_not_there_is_told_with_the_nearest_name():
    with pytest.raises(InputError, match="no column 'Y'") as error:
        outcome(["1", "2"], name="Y")
    assert "one of: y" in str(error.value)
    frame = pandas.DataFrame({"1.0": ["2"], "3": ["4"]})
    with pytest.raises(InputError, match="no header row"):
        learn_outcome(Table(frame, "t.csv"), "y")


def test_one_row_is_too_few():
    with pytest.raises(InputError, match="1 row to learn from"):
        learn_outcome(Table(pandas.DataFrame({"y": ["1"]}), "t.csv"), "y")


def test_an_outcome_comes_back_from_json():
    found = outcome(["low", "mid", "high"])
    assert Outcome.from_json(json.loads(json.dumps(found.as_json()))) == found
