"""The page for the browser: one file with everything in it, hostile texts, errors with names."""

import base64
import html.parser
import json
import os
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from follmer import FileError
from follmer.cli import app
from follmer.paper.report import write_page
from made_up import SVG, png, record, write

HOSTILE = "<script>alert('\"')</script>&amp;<img src=x onerror=alert(1)>"


class Reader(html.parser.HTMLParser):
    """What a browser would see: tags with their attributes, and the text outside of styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] != ["style"]:
            self.text.append(text)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def read(run):
    def page():
        return Reader(write_page(run).read_text())

    return page


def test_the_page_shows_every_experiment_its_numbers_and_its_verdicts(read):
    text = " ".join(read().text)
    for shown in (
        *("Banana-shaped classes", "Linear regression", "0.900 ± 0.014", "0.8928 ± 0.0056"),
        *("✓ trustworthy", "✗ do not use", "follmer reproduce banana", "num_steps", "one mode"),
        *("Figure one.svg", "What it shows.", "come from a figure", "BatchNorm", "d = 64"),
    ):
        assert shown in text


def test_every_tag_is_closed(read):
    assert read().open == []


def test_nothing_is_fetched_and_no_script_runs(read):
    page = read()
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object", "base"})
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:image/"))


def test_the_style_fetches_nothing(run):
    (style,) = re.findall(r"<style>(.*?)</style>", write_page(run).read_text(), re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_every_figure_is_in_the_page_as_it_was_on_disk(read):
    svg, picture = (attributes["src"].split(",") for attributes in read().all("img"))
    assert svg[0] == "data:image/svg+xml;base64"
    assert base64.b64decode(svg[1]).decode() == SVG
    assert picture[0] == "data:image/png;base64"
    assert base64.b64decode(picture[1]) == png(300, 200, (0, 255, 0))


def test_links_lead_to_sections_of_the_page(read):
    page = read()
    links = [attributes["href"] for attributes in page.all("a")]
    assert links == [f"#{attributes['id']}" for attributes in page.all("section")]
    assert len(links) == 2


def test_every_row_of_a_table_is_as_wide_as_its_heading(run):
    for table in re.findall(r"<table>.*?</table>", write_page(run).read_text()):
        widths = {
            sum(int(span or 1) for span in re.findall(r'<t[hd](?: [^>]*?colspan="(\d+)")?', row))
            for row in re.findall(r"<tr.*?</tr>", table)
        }
        assert len(widths) == 1


def test_the_badge_of_an_experiment_speaks_for_all_its_cases(run):
    cases = {"d = 32": "do not use", "d = 64": "trustworthy", "d = 128": "trustworthy"}
    results = [
        record("linear_regression", elbo=1.0, settings={"case": case, "verdict": verdict})
        for case, verdict in cases.items()
    ]
    failed = record("linear_regression", elbo=None, settings={"case": "d = 256"})
    write(run, results=[*results, failed])
    (card,) = re.findall(r"<nav>.*?</nav>", write_page(run).read_text())
    for badge in ("✗ do not use 1 of 4", "✓ trustworthy 2 of 4", "✗ nothing measured 1 of 4"):
        assert badge in card


def test_seeds_that_failed_have_a_badge_and_their_reason(run, records):
    failed = record("banana", seed=2, settings={"error": "NonFiniteError: it diverged"})
    write(run, results=[*records, failed])
    page = write_page(run).read_text()
    assert "✗ failed 1 of 3" in page
    assert "<dt>failed</dt><dd>NonFiniteError: it diverged</dd>" in page


def test_settings_are_folded_away(read):
    assert read().all("details") == [{}]


def test_hostile_texts_are_shown_and_not_obeyed(run):
    settings = {"case": HOSTILE, "verdict": HOSTILE, "notes": [HOSTILE], HOSTILE: [HOSTILE]}
    words = dict.fromkeys(("experiment", "preset", "title", "caption"), HOSTILE)
    write(
        run,
        results=[
            record(HOSTILE, HOSTILE, HOSTILE, settings=settings, **{HOSTILE: 1.0, "ece": 1.0}),
            record(HOSTILE, "n_sfs", HOSTILE, settings=settings, **{HOSTILE: 2.0, "ece": 2.0}),
        ],
        figures=[{**words, "file": "figures/one.svg"}],
        run={"command": HOSTILE, "date": HOSTILE, HOSTILE: HOSTILE, "versions": {HOSTILE: HOSTILE}},
    )
    page = Reader(write_page(run).read_text())
    assert page.all("script") == []
    assert [attributes["alt"] for attributes in page.all("img")] == [HOSTILE]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert "".join(page.text).count(HOSTILE) > 10


def test_the_same_run_is_the_same_page(run):
    assert write_page(run).read_bytes() == write_page(str(run)).read_bytes()


def test_a_page_needs_no_matplotlib(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert write_page(run).exists()


def test_a_run_without_results_is_a_page_too(run):
    write(run, results=[], figures=[])
    assert Reader(write_page(run).read_text()).all("section") == []


def test_figures_of_an_experiment_without_results_are_shown(run):
    write(run, results=[])
    page = Reader(write_page(run).read_text())
    assert len(page.all("img")) == 2


@pytest.mark.parametrize("name", ["results.json", "figures.json", "run.json", "figures/one.svg"])
def test_a_missing_file_is_named(run, name):
    (run / name).unlink()
    with pytest.raises(FileError, match=rf"there is no file .*{name}"):
        write_page(run)
    assert not (run / "report.html").exists()


@pytest.mark.parametrize("name", ["results.json", "figures.json", "run.json"])
@pytest.mark.parametrize("content", [b"", b"[{", b"\xff\xfe", b"3", b'[["a"]]', b"[" * 100_000])
def test_a_corrupt_file_is_named(run, name, content):
    (run / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name} cannot be used"):
        write_page(run)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": "one"}, "seed of record 0 is 'one'"),
        ({"metrics": {"ece": "low"}}, "metric ece of record 0 is 'low'"),
        ({"settings": {"case": 32}}, "case of record 0 is 32"),
        ({"settings": {"notes": "failed"}}, "notes of record 0 are 'failed'"),
        ({"seconds": None}, "seconds of record 0 is None"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(run, change, says):
    write(run, results=[{**record("banana"), **change}])
    with pytest.raises(FileError, match=says):
        write_page(run)


def test_a_record_that_lacks_something_is_named(run):
    broken = record("banana")
    del broken["method"]
    write(run, results=[record("banana"), broken])
    with pytest.raises(FileError, match="record 1 has no method"):
        write_page(run)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("../outside.svg", "outside its folder"),
        ("figures/one.html", "no SVG or PNG"),
        ("figures/broken.svg", "no whole SVG"),
        ("figures/broken.png", "no whole PNG"),
    ],
)
def test_a_figure_that_cannot_be_shown_is_named(run, file, says):
    (run.parent / "outside.svg").write_text(SVG)
    for kind in ("svg", "png", "html"):
        (run / "figures" / f"broken.{kind}").write_text(SVG[:-10])
    words = dict.fromkeys(("experiment", "preset", "title", "caption"), "")
    write(run, figures=[{**words, "file": file}])
    with pytest.raises(FileError, match=says):
        write_page(run)


def test_the_command_prints_where_the_page_is(run):
    result = CliRunner().invoke(app, ["report", str(run)])
    assert result.exit_code == 0, result.stderr
    page = Path(result.stdout.strip())
    assert page == run / "report.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert set(os.listdir(run)) == {
        *("figures", "figures.json", "report.html", "results.json", "run.json")
    }


def told(result, says):
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("follmer: ")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_that_is_not_there_is_told_without_a_traceback(tmp_path):
    told(CliRunner().invoke(app, ["report", str(tmp_path / "none")]), "there is no file or folder")


def test_a_folder_that_cannot_be_written_is_told_without_a_traceback(run, monkeypatch):
    really_open = Path.open

    def refuse(path, mode="r", *args, **kwargs):
        if "x" in mode:
            raise PermissionError(13, "Permission denied")
        return really_open(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    result = CliRunner().invoke(app, ["report", str(run)])
    told(result, "cannot write")
    assert "report.html" in result.stderr


def test_a_failed_write_leaves_the_old_page(run, monkeypatch):
    before = write_page(run).read_bytes()
    write(run, results=json.loads((run / "results.json").read_text())[:1])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left"):
        write_page(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.glob(".report*"))
