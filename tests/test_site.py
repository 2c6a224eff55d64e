"""The site: its code runs and prints what the pages say, its examples run, its build is whole."""

import ast
import functools
import re
import runpy
from pathlib import Path

import jax
import pytest
from benchmarks.outputs import blocks, run

import follmer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if blocks(page.read_text()))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# What `follmer.enable_compilation_cache` sets.
CACHE_OPTIONS = [
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
]
# Run by default; the others are slow.
QUICK_EXAMPLES = {"banana"}


def named(path):
    return str(path.relative_to(DOCS)) if path.is_relative_to(DOCS) else path.stem


def attributes(tree):
    """The dotted names of `follmer` that a program uses."""
    for node in ast.walk(tree):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id == "follmer":
            yield parts[::-1]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_code_of_a_page_is_of_this_library(page):
    """Every block parses, and every name of follmer exists."""
    for block in blocks(page.read_text()):
        for parts in attributes(ast.parse(block.code)):
            functools.reduce(getattr, parts, follmer)


def test_every_kind_of_page_is_looked_at():
    assert {"index.md", "guides/verdicts.md", "structured.md"} <= set(map(named, PAGES))


def without_numbers(text):
    """The words alone: figures differ with the machine, and the columns with them."""
    return re.sub(r"[-−+]?\d[\d.,e+-]*%?", "#", " ".join(text.split()))


@pytest.fixture
def own_cache():
    """A page may keep its programs in a folder of its own."""
    before = {name: jax.config.values[name] for name in CACHE_OPTIONS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_runs_as_written_and_prints_what_it_says(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for block, told in run(page):
        if block.printed is not None:
            assert without_numbers(told) == without_numbers(block.printed)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, marks=[] if one.stem in QUICK_EXAMPLES else [pytest.mark.slow])
        for one in EXAMPLES
    ],
    ids=named,
)
def test_an_example_prints_and_draws(example, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
    pictures = list(tmp_path.glob("*.svg"))
    if (DOCS / "gallery" / f"{example.stem}.svg").exists():
        assert [picture.stem for picture in pictures] == [example.stem]
        assert pictures[0].read_text().startswith("<?xml")


def test_the_gallery_shows_ten_examples_with_pictures_and_texts():
    page = (DOCS / "gallery.md").read_text()
    shown = re.findall(r"!\[[^]]*\]\(gallery/(\w+)\.svg\)", page)
    assert len(shown) == 10
    for name in shown:
        assert (ROOT / "examples" / f"{name}.py").exists()
        assert f'--8<-- "examples/{name}.py"' in page, "the code is shown"
        assert (DOCS / "gallery" / f"{name}.txt").read_text().strip()


def test_every_page_has_its_place():
    """In the navigation, or left out by name."""
    settings = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert named(page) in settings, f"{named(page)} is neither in nav nor in exclude_docs"


def test_the_check_of_the_built_site_sees_what_is_wrong(tmp_path):
    problems = runpy.run_path(str(DOCS / "check.py"))["problems"]
    (tmp_path / "other.html").write_text('<p id="here">')
    page = tmp_path / "page.html"
    page.write_text('<a href="other.html#here"><a href="https://example.org"><img src="a.svg">')
    (tmp_path / "a.svg").write_text("<svg/>")
    assert problems(tmp_path) == []
    page.write_text(
        '<a href="missing.html"><a href="other.html#there"><a href="#nowhere">'
        '<script src="https://example.org/x.js"></script>'
    )
    found = problems(tmp_path)
    assert len(found) == 4
    for part in ("missing.html", "#there", "#nowhere", "loads https://example.org/x.js"):
        assert any(part in line for line in found), part


def test_files_that_pages_name_exist():
    for page in DOCS.rglob("*.md"):
        for name in re.findall(
            r"\b(?:tests|examples|docs|benchmarks)/[\w/]+\.py\b", page.read_text()
        ):
            known = name == "examples/NAME.py" or (ROOT / name).exists()
            assert known, f"{named(page)} names {name}"
