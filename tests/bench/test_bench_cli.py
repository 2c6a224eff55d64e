"""`follmer bench`: its options, what goes where, and errors without tracebacks."""

import json

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from follmer.bench import running
from follmer.cli import app


def bench(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments])


def test_list_names_targets_and_methods():
    result = bench("--list")
    assert result.exit_code == 0
    for name in ("gmm25", "linear_regression_d2048", "posteriordb", "mean_field", "nuts"):
        assert name in result.stdout


def test_table_goes_to_stdout_and_progress_to_stderr():
    result = bench("gaussian_r1", "--methods", "laplace")
    assert result.exit_code == 0, result.stderr
    assert "| gaussian_r1 |" in result.stdout
    assert "cores:" in result.stdout
    assert "gaussian_r1: laplace" in result.stderr
    assert "gaussian_r1: laplace" not in result.stdout


def test_json_is_all_that_stdout_holds():
    result = bench("gaussian_r1", "--methods", "laplace,flow", "--json", "--seed", "1")
    assert result.exit_code == 0, result.stderr
    read = json.loads(result.stdout, parse_constant=pytest.fail)
    assert [record["method"] for record in read["results"]] == ["laplace", "flow"]
    assert read["results"][1]["note"].startswith("skipped")
    assert "versions" in read["machine"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["gm25"], "'gmm25'"), (["gmm25", "--methods", "laplas"], "'laplace'")],
)
def test_unknown_names_are_told_with_the_nearest(arguments, says):
    result = bench(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("follmer: there is no ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupted_bench_prints_what_it_has(monkeypatch):
    def run(names, **options):
        yield running.Record("gmm25", "nuts", 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run", run)
    result = bench("gmm25", "funnel")
    assert result.exit_code == 0
    assert "| gmm25 " in result.stdout
    assert "interrupted" in result.stderr


@pytest.fixture
def precision_kept():
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.usefixtures("precision_kept")
def test_posteriordb_runs_in_double_precision(monkeypatch):
    seen = {}

    def run_posteriordb(names, **options):
        seen.update(names=names, dtype=jnp.zeros(()).dtype, **options)
        yield running.PosteriordbRecord("eight", "nuts", 10)

    monkeypatch.setattr(running, "run_posteriordb", run_posteriordb)
    result = bench("posteriordb", "eight", "--methods", "nuts")
    assert result.exit_code == 0, result.stderr
    assert seen["dtype"] == jnp.float64
    assert seen["names"] == ["eight"]
    assert seen["methods"] == ("nuts",)
    assert "| eight " in result.stdout
