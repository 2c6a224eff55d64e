"""`follmer fit`, `predict`, `info` and `report`: a whole round, and every bad input told."""

import json

import numpy as np
import pandas
import pytest
from typer.testing import CliRunner

import follmer.tabular.fitting
from follmer.cli import app
from small_tables import mixed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and a model of it, fitted from the command line."""
    folder = tmp_path_factory.mktemp("round")
    (folder / "data.csv").write_text(mixed(150, outcome=high_or_low), encoding="utf-8-sig")
    (folder / "new.csv").write_text(mixed(40, seed=1, outcome=high_or_low), encoding="utf-8")
    command = ["fit", "data.csv", "--target", "y", "--model", "linear", "--out", "model.follmer"]
    result = run(folder, *command, "--json", "--seed", "3", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    (folder / "fit.json").write_text(result.stdout)
    return folder


@pytest.fixture
def unfitted(monkeypatch):
    """Fitting fails the test: an error must come before it."""

    def never(*_):
        pytest.fail("the model was fitted before its input was checked")

    monkeypatch.setattr(follmer.tabular.fitting, "_fitted", never)


def high_or_low(y, rng):
    return "high" if y > 3.5 else "low"


def run(folder, command, *arguments):
    """The command with files of the folder; options and their values as they are."""
    places = [
        str(folder / one)
        if one.endswith((".csv", ".tsv", ".parquet", ".follmer", ".html"))
        else one
        for one in arguments
    ]
    return CliRunner().invoke(app, [command, *places])


def assert_told(result, says):
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].startswith("follmer: ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_fit_tells_all_as_json(folder):
    told = json.loads((folder / "fit.json").read_text())
    assert told["outcome"]["task"] == "binary"
    assert told["outcome"]["classes"] == ["high", "low"]
    assert told["facts"]["held-out rows"] == 20
    assert told["facts"]["seed"] == 3
    assert told["usable"] is True
    assert {one["name"] for one in told["schema"]["dropped"]} == {"id", "unit"}
    assert told["scores"]["log_density"] > told["scores"]["baseline_log_density"]


def test_predictions_stand_in_the_order_of_the_rows(folder):
    result = run(
        *(folder, "predict", "model.follmer", "new.csv", "--out", "predictions.csv"),
        *("--keep", "id"),
    )
    assert result.exit_code == 0, result.stderr
    found = pandas.read_csv(folder / "predictions.csv")
    new = pandas.read_csv(folder / "new.csv")
    assert list(found.columns) == ["id", "prediction", "p_high", "p_low"]
    assert found["id"].tolist() == new["id"].tolist()
    np.testing.assert_allclose(found["p_high"] + found["p_low"], 1, atol=1e-6)
    # Chance is .5, whose share of 40 rows has a standard error of .08.
    assert (found["prediction"] == new["y"]).mean() > 0.75
    assert "40 rows of predictions" in result.stdout


def test_predictions_can_be_told_as_json_and_written_as_parquet(folder):
    result = run(
        folder, "predict", "model.follmer", "new.csv", "--out", "p.parquet", "--json", "--quiet"
    )
    assert json.loads(result.stdout)["rows"] == 40
    assert result.stderr == ""
    assert len(pandas.read_parquet(folder / "p.parquet")) == 40


def test_quiet_commands_say_nothing(folder):
    for command in (
        ["predict", "model.follmer", "new.csv", "--out", "quiet.csv", "--quiet"],
        ["report", "model.follmer", "--out", "quiet.html", "--quiet"],
    ):
        result = run(folder, *command)
        assert result.exit_code == 0
        assert result.output == ""


def test_info_tells_the_model_without_loading_it(folder):
    result = run(folder, "info", "model.follmer")
    assert result.exit_code == 0
    assert "binary (two values)" in result.stdout
    assert "Verdict: " in result.stdout
    told = json.loads(run(folder, "info", "model.follmer", "--json").stdout)
    assert told["facts"] == json.loads((folder / "fit.json").read_text())["facts"]


def test_report_writes_a_page_beside_the_model(folder):
    result = run(folder, "report", "model.follmer")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str((folder / "model.html").resolve())
    assert "Partial dependence" in (folder / "model.html").read_text()


def test_missing_cells_and_unseen_categories_of_new_rows_are_told(folder):
    (folder / "odd.csv").write_text("x,city,garden,when\n,mars,yes,2022-03-01\n1.0,a,,\n")
    result = run(folder, "predict", "model.follmer", "odd.csv", "--out", "odd_out.csv")
    assert result.exit_code == 0, result.stderr
    for words in ("'x': 1 cell is missing", "('mars')", "'garden': 1 cell is missing"):
        assert words in result.stdout
    assert len(pandas.read_csv(folder / "odd_out.csv")) == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("x,city,garden\n1,a,yes\n", "no column 'when'"),
        ("x,city,garden,when\n1,a,yes,2022-03-01\nmany,a,no,2022-03-02\n", "row 2, column 'x'"),
        ("x,city,garden,when\n1,a,maybe,2022-03-01\n", "row 1, column 'garden'"),
        ("x,city,garden,when\n1,a,no,tomorrow\n", "row 1, column 'when'"),
        ("", "is empty"),
        ("x,city,garden,when\n", "no rows"),
    ],
)
def test_new_rows_that_cannot_be_read_are_told_and_nothing_is_written(folder, content, says):
    (folder / "bad.csv").write_text(content)
    result = run(folder, "predict", "model.follmer", "bad.csv", "--out", "bad_out.csv")
    assert_told(result, says)
    assert not (folder / "bad_out.csv").exists()


ROWS = "".join(f"{i % 7}.5,{i % 3}.25\n" for i in range(30))


@pytest.mark.usefixtures("unfitted")
@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (f"x,z\n{ROWS}", [], "no column 'y'"),
        ("x,y\n1,2\n", [], "1 row to learn from"),
        ("", [], "is empty"),
        ("x,y\n", [], "no rows"),
        (f"x,y\n{ROWS}oops,1.5\n", [], "row 31, column 'x': 'oops' is not a number"),
        (f"x,y\n{ROWS}1.5,oops\n", [], "row 31, column 'y': 'oops' is not a number"),
        ("x,y\n" + "1.5,no\n2.5,no\n" * 9, [], "one value only"),
        ("x,y\n" + "1,2\n1,3\n" * 9, [], "no column to predict 'y' from"),
        (f"x,y\n{ROWS}1,2,3\n", [], "row 31 of"),
        (f"x,y\n{ROWS}", ["--task", "count"], "is no count"),
        (f"x,y\n{ROWS}", ["--column", "x"], "not NAME=KIND"),
        (f"x,y\n{ROWS}", ["--column", "x=colour"], "cannot be 'colour'"),
        (f"x,y\n{ROWS}", ["--column", "z=numeric"], "no column 'z'"),
        (f"x,y\n{ROWS}", ["--held-out", "1.5"], "held_out"),
        (f"x,y\n{ROWS}", ["--encoding", "klingon"], "not an encoding"),
    ],
)
def test_tables_that_cannot_be_fitted_are_told_and_nothing_is_written(
    tmp_path, content, options, says
):
    (tmp_path / "t.csv").write_text(content)
    result = run(tmp_path, "fit", "t.csv", "--target", "y", "--out", "m.follmer", *options)
    # What was understood before the error is told on the way.
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_error_is_told_as_json_too(tmp_path):
    result = run(tmp_path, "fit", "none.csv", "--target", "y", "--out", "m.follmer", "--json")
    assert result.exit_code == 1
    assert "there is no file" in json.loads(result.stdout)["error"]


@pytest.mark.usefixtures("unfitted")
def test_a_place_that_cannot_be_written_is_told_before_the_fit(tmp_path):
    (tmp_path / "t.csv").write_text(f"x,y\n{ROWS}")
    (tmp_path / "m.follmer").mkdir()
    result = run(tmp_path, "fit", "t.csv", "--target", "y", "--out", "m.follmer")
    assert_told(result, "is a folder")


@pytest.mark.parametrize("command", ["info", "report", "predict"])
def test_files_that_are_no_models_are_told(folder, tmp_path, command):
    rest = ["new.csv", "--out", "nothing.csv"] if command == "predict" else []
    whole = (folder / "model.follmer").read_bytes()
    for content, says in (
        (whole[: len(whole) // 2], "is not a follmer table model"),
        (b"y\n1\n", "is not a follmer table model"),
        (None, "there is no file"),
    ):
        path = tmp_path / "m.follmer"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        assert_told(run(folder, command, str(path), *rest), says)
    assert not (folder / "nothing.csv").exists()


def test_a_verdict_against_the_model_is_an_exit_code(folder, monkeypatch):
    monkeypatch.setattr(follmer.tabular.TableModel, "is_usable", False)
    monkeypatch.setattr(
        follmer.tabular,
        "fit_table",
        lambda *_, **__: follmer.tabular.load_model(folder / "model.follmer"),
    )
    result = run(folder, "fit", "data.csv", "--target", "y", "--out", "again.follmer")
    assert result.exit_code == 3
    assert (folder / "again.follmer").exists()
    assert "Why: " in result.stdout


def count(y, rng):
    return int(rng.poisson(np.exp(0.4 * (y - 3.0))))


def grade(y, rng):
    return "low" if y < 2.5 else "high" if y > 4.5 else "middle"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["network", "linear"])
@pytest.mark.parametrize(
    ("outcome", "task", "columns"),
    [
        (count, "count", ["mean", "sd", "lower", "upper"]),
        (grade, "multiclass", ["prediction", "p_high", "p_low", "p_middle"]),
    ],
)
def test_counts_and_grades_go_all_the_way(tmp_path, model, outcome, task, columns):
    (tmp_path / "data.csv").write_text(mixed(400, outcome=outcome))
    (tmp_path / "new.csv").write_text(mixed(30, seed=1, outcome=outcome))
    options = ["--target", "y", "--model", model, "--json", "--quiet"]
    result = run(tmp_path, "fit", "data.csv", "--out", "m.follmer", *options)
    assert result.exit_code in (0, 3), result.stderr
    told = json.loads(result.stdout)
    assert told["outcome"]["task"] == task
    assert told["scores"]["log_density"] > told["scores"]["baseline_log_density"]
    result = run(tmp_path, "predict", "m.follmer", "new.csv", "--out", "p.csv")
    assert result.exit_code == 0, result.stderr
    assert list(pandas.read_csv(tmp_path / "p.csv").columns) == columns
    assert run(tmp_path, "report", "m.follmer").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "data.csv", "--out", "m.follmer"],
        ["fit", "data.csv", "--target", "y", "--out", "m.follmer", "--task", "guess"],
        ["predict", "m.follmer"],
    ],
)
def test_wrong_usage_has_its_own_exit_code(arguments):
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_the_shell_can_complete_commands(monkeypatch):
    monkeypatch.setenv("_FOLLMER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "follmer pre")
    monkeypatch.setenv("COMP_CWORD", "1")
    result = CliRunner().invoke(app, [], prog_name="follmer")
    assert result.stdout.split() == ["predict"]
