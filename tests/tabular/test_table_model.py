"""A model of a table: fitted, scored on rows it has not seen, written and read again."""

import json

import numpy as np
import pandas
import pytest

from follmer import FileError, InputError
from follmer.columns import read_table
from follmer.columns.reading import Table
from follmer.tabular import described, fit_table, header_of, load_model, read_header, save_model
from follmer.tabular.dependence import dependences
from follmer.tabular.importance import importances
from follmer.tools import storage
from small_tables import mixed


@pytest.fixture(scope="module")
def new(tmp_path_factory):
    """200 more rows of the same kind."""
    path = tmp_path_factory.mktemp("new") / "new.csv"
    path.write_text(mixed(200, seed=1), encoding="utf-8")
    return read_table(path)


def test_rows_columns_and_task_are_told(fitted):
    told = described(header_of(fitted))
    for words in (
        *("y of mixed.csv", "regression (numbers)", "100 fitted, 20 held out"),
        *("4 used: 1 numeric, 1 categorical, 1 boolean, 1 date", "id: an identifier"),
        *("unit: constant", "cells are missing", "Verdict: "),
    ):
        assert words in told


def test_new_rows_are_predicted_in_their_order(fitted, new):
    found, remarks = fitted.predict(new)
    y = new.frame["y"].astype(float).to_numpy()
    assert list(found.columns) == ["mean", "sd", "lower", "upper"]
    assert len(found) == 200
    # The noise is .5 and the rows with x missing (one in 20) have an error of about 2.
    assert np.sqrt(np.mean((found["mean"] - y) ** 2)) < 1.0
    # Of 200 rows 90 % come true within four standard errors, .085.
    covered = ((found["lower"] <= y) & (y <= found["upper"])).mean()
    assert abs(covered - 0.9) < 0.085
    assert any("'x'" in remark and "missing" in remark for remark in remarks)


def test_a_wider_interval_holds_more(fitted, new):
    narrow, _ = fitted.predict(new, level=0.5)
    wide, _ = fitted.predict(new, level=0.99)
    assert (wide["lower"] < narrow["lower"]).all()
    assert (wide["upper"] > narrow["upper"]).all()
    with pytest.raises(InputError, match="level"):
        fitted.predict(new, level=0.0)


def test_held_out_rows_are_predicted_better_than_without_any_column(fitted):
    scores = fitted.scores
    assert scores.num_rows == 20
    assert scores.log_density > scores.baseline_log_density
    assert scores.error < scores.baseline_error
    assert np.all(np.diff(scores.below) >= 0)


def test_a_model_comes_back_from_its_file(fitted, new, tmp_path):
    path = tmp_path / "model.follmer"
    save_model(fitted, path)
    again = load_model(path)
    assert again.outcome == fitted.outcome
    assert again.schema == fitted.schema
    assert again.scores == fitted.scores
    told = json.loads(json.dumps(header_of(fitted)))
    assert read_header(path) == {"follmer": "table model", "version": 2, **told}
    assert header_of(again) == header_of(fitted)
    pandas.testing.assert_frame_equal(again.predict(new)[0], fitted.predict(new)[0], rtol=1e-5)


@pytest.mark.parametrize("spoil", ["cut", "other", "version", "text"])
def test_a_file_that_is_no_model_of_ours_is_told(fitted, tmp_path, spoil):
    path = tmp_path / "model.follmer"
    save_model(fitted, path)
    content = path.read_bytes()
    if spoil == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif spoil == "other":
        fitted.estimator.save(path)
    elif spoil == "version":
        header = json.dumps({"follmer": "table model", "version": 1}).encode()
        with path.open("wb") as file:
            np.savez(file, __header__=np.frombuffer(header, np.uint8))
    else:
        path.write_text("y\n1\n")
    says = {"other": "holds a follmer fitted estimator", "version": "format version 1"}
    for reader in (load_model, read_header):
        with pytest.raises(FileError, match=says.get(spoil, "is not a follmer table model")):
            reader(path)


def test_the_columns_that_matter_come_first(fitted):
    ranked = importances(fitted)
    assert {one.name for one in ranked} == {"x", "city", "garden", "when"}
    assert [one.name for one in ranked[:2]] == ["x", "city"]
    assert ranked[0].fall > 0.5


def test_the_dependence_on_a_number_is_its_slope(fitted):
    by_x, by_city = dependences(fitted, ["x", "city"])
    slopes = np.diff(by_x.mean[:, 0]) / np.diff(by_x.values)
    # The slope is 2; its posterior sd is about .5/√100, twice that with the cells that are missing.
    np.testing.assert_allclose(slopes, 2.0, atol=0.4)
    assert by_city.values.tolist() == ["a", "b", "ö"]
    assert by_city.mean[0, 0] - by_city.mean[1, 0] == pytest.approx(1.5, abs=0.6)
    for one in (by_x, by_city):
        assert (one.lower <= one.mean).all()
        assert (one.mean <= one.upper).all()


def test_rows_without_a_target_are_left_out_and_too_few_rows_are_told(tmp_path):
    frame = pandas.DataFrame({"x": ["1", "2", "4"], "y": ["1", None, None]})
    with pytest.raises(InputError, match="1 row to learn from"):
        fit_table(Table(frame, tmp_path / "t.csv"), "y")


def test_so_many_held_out_rows_that_none_are_left_are_told(mixed_csv):
    with pytest.raises(InputError, match="left to learn from"):
        fit_table(read_table(mixed_csv), "y", held_out=0.99)


def test_a_file_of_a_model_holds_no_pickle(fitted, tmp_path):
    path = tmp_path / "model.follmer"
    save_model(fitted, path)
    _, arrays = storage.read(path, "table model")
    assert all(values.dtype != object for values in arrays.values())
