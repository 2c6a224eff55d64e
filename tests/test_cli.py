"""The command line: help, the demo made tiny, and errors without tracebacks."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import follmer
import follmer.demo
from follmer.cli import app
from follmer.targets.affine import diagonal

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
TINY = {
    "num_iterations": 10,
    "chunk_size": 5,
    "num_steps": 4,
    "num_paths": 8,
    "drift": "mlp",
    "drift_options": {"width": 8, "depth": 1},
    "progress": False,
    "precondition": "identity",
    "audit": False,
}


@pytest.fixture
def tiny(monkeypatch):
    """The demo with hardly any training."""

    def fit(target, **options):
        return follmer.fit(target, **{**options, **TINY})

    monkeypatch.setattr(follmer.demo, "fit", fit)


@pytest.fixture
def untrained(monkeypatch):
    """Training fails the test: an error must come before it."""

    def fit(target, **options):
        pytest.fail("the demo trained before it checked its arguments")

    monkeypatch.setattr(follmer.demo, "fit", fit)


def assert_told_in_one_paragraph(result, says):
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("follmer: ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert "\n\n" not in result.stderr.strip()


def test_help_names_the_demo():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "demo" in result.stdout


def test_no_arguments_show_the_help():
    result = CliRunner().invoke(app, [])
    assert "demo" in result.output


def test_python_dash_m_follmer_shows_the_help():
    result = subprocess.run(
        [sys.executable, "-m", "follmer", "--help"], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "demo" in result.stdout


def test_version_is_printed_alone():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"follmer {follmer.__version__}\n" == "follmer 0.1.0\n"
    assert result.stderr == ""


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_demo_tells_the_evidence_and_a_verdict_and_draws_a_picture(tmp_path):
    picture = tmp_path / "picture.png"
    result = CliRunner().invoke(app, ["demo", "--out", str(picture)], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert sum(line.startswith("ln Z") for line in lines) == 2
    assert sum(line.startswith("Verdict: ") for line in lines) == 2
    assert any("sigma" in line for line in lines)
    assert str(picture) in "".join(lines)
    assert picture.read_bytes().startswith(PNG_SIGNATURE)


def test_the_demos_contours_are_those_of_the_parameters_when_the_target_is_whitened(
    tmp_path, monkeypatch
):
    drawn = []

    def whitened(target, **_):
        rng = np.random.default_rng(0)
        flat = diagonal(np.full(target.dim, 3.0), np.full(target.dim, 2.0), target.dtype)
        draws = rng.normal(size=(1000, 2))
        if target.dim == 3:
            draws = {"intercept": draws[:, 0], "slope": draws[:, 1], "sigma": np.full(1000, 0.6)}
        return SimpleNamespace(
            target=target.whitened(flat), resample=lambda *_, **__: draws, summary=lambda **_: ""
        )

    def note(axes, draws, first, second, log_density):
        row, column = np.unravel_index(log_density.argmax(), log_density.shape)
        drawn.append((first[column], second[row]))

    monkeypatch.setattr(follmer.demo, "fit", whitened)
    monkeypatch.setattr(follmer.plots, "scatter_over_contours", note)
    follmer.demo.run(tmp_path / "demo.png", 0)
    # The banana is highest at (0, −1); the grid's cells are below 0.07 wide.
    np.testing.assert_allclose(drawn[0], (0, -1), atol=0.07)
    # The data have intercept 0.5 and slope −1.2, known to about 0.6/√50.
    np.testing.assert_allclose(drawn[1], (0.5, -1.2), atol=0.35)


@pytest.mark.usefixtures("untrained")
def test_missing_folder_is_told_without_a_traceback(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "nowhere" / "demo.png")])
    assert_told_in_one_paragraph(result, "there is no folder")


@pytest.mark.usefixtures("untrained")
def test_folder_as_picture_is_told_without_a_traceback(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert_told_in_one_paragraph(result, str(tmp_path))


@pytest.mark.usefixtures("untrained")
def test_unknown_kind_of_picture_is_told_before_training(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo.picture")])
    assert_told_in_one_paragraph(result, "picture")


@pytest.mark.usefixtures("untrained")
def test_missing_matplotlib_is_told_with_the_extra_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo.png")])
    assert_told_in_one_paragraph(result, "follmer[plots]")


def test_seed_that_is_no_number_is_a_usage_error():
    result = CliRunner().invoke(app, ["demo", "--seed", "one"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
