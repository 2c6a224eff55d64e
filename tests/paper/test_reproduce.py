"""A run's folder: what is kept, what is replaced, and what is refused."""

import itertools
import json
import sys

import pytest
from typer.testing import CliRunner

from follmer import FileError, InputError, plots
from follmer.cli import app
from follmer.paper import reproduce as reproducing
from follmer.paper.experiments.experiment import Picture, Record, Trial
from follmer.paper.reproduce import reproduce


def record(name, preset="auto", method="sgld", seed=0, **metrics):
    settings = {"case": "", "verdict": "do not use"}
    return Record(name, preset, method, seed, metrics, 1.0, settings)


def trial(method="sgld"):
    return Trial(None, method, None, {})


@pytest.fixture
def made_up(monkeypatch):
    """Experiments whose results are made up; a test may put others in their place."""
    results = {}

    def run(names, *, preset, **_):
        own = [one for name in names for one in results[name, preset]]

        def each():
            for one in own:
                if one is KeyboardInterrupt:
                    raise one
                yield one

        return each()

    def pictures(preset, trials, records):
        for name in [one.method for one in trials]:
            yield Picture(name, "A title", f"{len(records)} records.", plots.figure()[0])

    monkeypatch.setattr(reproducing, "run", run)
    for module in reproducing.EXPERIMENTS.values():
        monkeypatch.setattr(module, "pictures", pictures)
    return results


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def places(folder, name="results"):
    return [(one["experiment"], one["preset"]) for one in read(folder, name)]


def test_a_run_leaves_results_figures_and_a_page(made_up, tmp_path):
    made_up["banana", "auto"] = [
        (record("banana", seed=0, accuracy=0.8), trial()),
        (record("banana", seed=1, accuracy=None), trial()),
    ]
    page = reproduce(["banana"], out=tmp_path / "new" / "run")
    folder = page.parent
    assert [one["metrics"] for one in read(folder, "results")] == [
        {"accuracy": 0.8},
        {"accuracy": None},
    ]
    # One figure for the first seed's one trial, made with the records of all seeds.
    (figure,) = read(folder, "figures")
    assert figure["file"] == "figures/banana_auto_sgld.svg"
    assert figure["caption"] == "2 records."
    assert (folder / figure["file"]).read_text().rstrip().endswith("</svg>")
    assert read(folder, "run")["command"] == "follmer reproduce banana --preset auto --seeds 5"
    assert "A title" in page.read_text()
    assert not list(folder.rglob(".*"))


def test_records_tell_the_commit_that_the_run_began_at(made_up, tmp_path, monkeypatch):
    commits = itertools.chain(["before"], itertools.repeat("after"))
    monkeypatch.setattr(reproducing, "commit", lambda: next(commits))
    made_up["a9a", "auto"] = [(record("a9a", seed=seed, ece=0.1), trial()) for seed in range(2)]
    reproduce(["a9a"], out=tmp_path)
    told = [one["settings"]["made"] for one in read(tmp_path, "results")]
    assert all("commit before: follmer reproduce a9a" in one for one in told)
    assert len(told) == 2


def test_an_interrupted_run_keeps_what_is_finished(made_up, tmp_path):
    made_up["a9a", "auto"] = [(record("a9a", ece=0.1), trial())]
    made_up["banana", "auto"] = [(record("banana", ece=0.2), trial()), KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        reproduce(["a9a", "banana"], out=tmp_path)
    assert places(tmp_path) == [("a9a", "auto"), ("banana", "auto")]
    assert places(tmp_path, "figures") == [("a9a", "auto")]
    assert "Banana-shaped" in (tmp_path / "report.html").read_text()


def test_presets_and_experiments_share_a_folder(made_up, tmp_path):
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    made_up["banana", "paper"] = [(record("banana", "paper", ece=0.2), trial())]
    made_up["a9a", "auto"] = [(record("a9a", ece=0.3), trial())]
    for name, preset in made_up:
        reproduce([name], preset=preset, out=tmp_path)
    # In the experiments' own order.
    wanted = [("a9a", "auto"), ("banana", "auto"), ("banana", "paper")]
    assert places(tmp_path) == places(tmp_path, "figures") == wanted
    assert read(tmp_path, "run")["command"].count("follmer reproduce") == 3


def test_a_command_is_forgotten_with_its_results(made_up, tmp_path):
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    reproduce(["banana"], seeds=5, out=tmp_path)
    made_up["banana", "auto"] = [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        reproduce(["banana"], seeds=3, out=tmp_path)
    # The first one's results are still there.
    assert "--seeds 5" in read(tmp_path, "run")["command"]
    made_up["banana", "auto"] = [(record("banana", ece=0.2), trial())]
    reproduce(["banana"], seeds=2, out=tmp_path)
    assert read(tmp_path, "run")["command"] == "follmer reproduce banana --preset auto --seeds 2"


def test_a_second_run_replaces_the_first_and_its_figures(made_up, tmp_path):
    made_up["a9a", "auto"] = [(record("a9a", ece=0.3), trial())]
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    reproduce(["a9a", "banana"], out=tmp_path)
    made_up["banana", "auto"] = [(record("banana", method="sgd", ece=0.2), trial("sgd"))]
    reproduce(["banana"], out=tmp_path)
    assert [one["metrics"]["ece"] for one in read(tmp_path, "results")] == [0.3, 0.2]
    files = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert files == ["a9a_auto_sgld.svg", "banana_auto_sgd.svg"]


def test_methods_share_a_folder_and_each_record_tells_its_run(made_up, tmp_path):
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    reproduce(["banana"], out=tmp_path, methods=["sgld"])
    before = (tmp_path / "figures" / "banana_auto_sgld.svg").read_bytes()
    made_up["banana", "auto"] = [(record("banana", method="sgd", ece=0.2), trial("sgd"))]
    told = []
    reproduce(["banana"], out=tmp_path, methods=["sgd"], progress=told.append)
    found = {one["method"]: one for one in read(tmp_path, "results")}
    assert {name: one["metrics"]["ece"] for name, one in found.items()} == {"sgld": 0.1, "sgd": 0.2}
    for name, one in found.items():
        assert one["settings"]["made"].endswith(f"--seeds 5 --methods {name}")
    assert read(tmp_path, "run")["command"].count("follmer reproduce") == 2
    # A figure of one method alone would hide the other.
    files = [one["file"] for one in read(tmp_path, "figures")]
    assert files == ["figures/banana_auto_sgld.svg"]
    assert (tmp_path / files[0]).read_bytes() == before
    assert "no new figures" in told[-1]
    reproduce(["banana"], out=tmp_path)
    assert read(tmp_path, "run")["command"] == "follmer reproduce banana --preset auto --seeds 5"


def test_earlier_results_stay_until_there_are_new_ones(made_up, tmp_path):
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    reproduce(["banana"], out=tmp_path)
    made_up["banana", "auto"] = [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        reproduce(["banana"], out=tmp_path)
    assert read(tmp_path, "results")[0]["metrics"] == {"ece": 0.1}


def test_failures_are_recorded_and_told_in_table_and_page(made_up, tmp_path):
    failed = record("banana", method="sgd")
    failed.settings["error"] = "ZeroDivisionError: no luck"
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial()), (failed, None)]
    result = CliRunner().invoke(app, ["reproduce", "banana", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert "- SGD, auto: nothing measured: ZeroDivisionError: no luck" in result.stdout
    assert "no luck" in (tmp_path / "report.html").read_text()


def test_figures_that_cannot_be_drawn_are_told_and_the_results_stay(made_up, tmp_path, monkeypatch):
    def pictures(preset, trials, records):
        raise ZeroDivisionError("no ink")

    told = []
    monkeypatch.setattr(reproducing.EXPERIMENTS["banana"], "pictures", pictures)
    made_up["banana", "auto"] = [(record("banana", ece=0.1), trial())]
    reproduce(["banana"], out=tmp_path, progress=told.append)
    assert places(tmp_path) == [("banana", "auto")]
    assert "no ink" in told[-1]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(made_up, tmp_path):
    made_up["banana", "auto"] = [KeyboardInterrupt]
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot write"):
            reproduce(["banana"], out=out)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_spoilt_folder_is_refused_and_left_alone(made_up, tmp_path):
    made_up["banana", "auto"] = [KeyboardInterrupt]
    (tmp_path / "results.json").write_text("[")
    with pytest.raises(FileError):
        reproduce(["banana"], out=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_missing_matplotlib_is_told_before_anything_is_written(made_up, tmp_path, monkeypatch):
    made_up["banana", "auto"] = [KeyboardInterrupt]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"follmer\[plots\]"):
        reproduce(["banana"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bananas"], "'banana'"),
        (["banana", "--preset", "papers"], "'paper'"),
        (["banana", "--methods", "nut"], "'nuts'"),
        (["banana", "--seeds", "0"], "seeds must be"),
    ],
)
def test_wrong_words_are_told_and_nothing_is_written(arguments, says, tmp_path):
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(out)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists()


def test_an_interrupted_command_prints_what_is_finished(made_up, tmp_path):
    made_up["banana", "auto"] = [(record("banana", ece=0.2), trial()), KeyboardInterrupt]
    result = CliRunner().invoke(app, ["reproduce", "banana", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "## Banana-shaped classes" in result.stdout
    assert "interrupted" in result.stderr


def test_a_command_that_measures_nothing_fails(made_up, tmp_path):
    failed = record("banana")
    failed.settings["error"] = "FileError: no data"
    made_up["banana", "auto"] = [(failed, None)]
    result = CliRunner().invoke(app, ["reproduce", "banana", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "nothing measured: FileError: no data" in result.stdout


def test_the_command_goes_all_the_way_at_toy_size(tmp_path):
    arguments = ["gaussian_mixture", "--tiny", "--seeds", "1", "--methods", "mc_sfs,sgld"]
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert "| 2 modes | MC-SFS | auto" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout
    assert "gaussian_mixture, 2 modes (auto): sgld, seed 0" in result.stderr
    assert [one["method"] for one in read(tmp_path, "results")] == ["mc_sfs", "sgld"]
    (figure,) = read(tmp_path, "figures")
    assert (tmp_path / figure["file"]).is_file()
    assert (tmp_path / "report.html").is_file()


def test_only_what_a_folder_lacks_is_run(tmp_path):
    tiny = ["gaussian_mixture", "--tiny", "--methods", "sgld", "--out", str(tmp_path)]
    runner = CliRunner()
    assert runner.invoke(app, ["reproduce", *tiny, "--seeds", "2"]).exit_code == 0
    before = read(tmp_path, "results")
    failed = {**before[1]["settings"], "error": "ZeroDivisionError: no luck"}
    spoilt = [before[0], {**before[1], "settings": failed, "metrics": {}}]
    (tmp_path / "results.json").write_text(json.dumps(spoilt))
    result = runner.invoke(app, ["reproduce", *tiny, "--seeds", "3", "--missing"])
    assert result.exit_code == 0, result.stderr
    assert "seed 0" not in result.stderr
    first, *others = read(tmp_path, "results")
    assert first == before[0]
    assert [one["seed"] for one in others] == [1, 2]
    assert others[0]["metrics"] == before[1]["metrics"]
    assert all(one["settings"]["made"].endswith("--missing --tiny") for one in others)
    earlier, later = read(tmp_path, "run")["command"].split(" && ")
    assert "--seeds 2" in earlier
    assert "--seeds 3" in later
    assert (tmp_path / "report.html").is_file()
