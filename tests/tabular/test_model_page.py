"""The page of a model: whole, offline, proof against hostile names, and seen in a browser."""

import dataclasses
import re

import numpy as np
import pytest
from PIL import Image

from browsing import browse, needs_browser, seen
from follmer.columns import Schema
from follmer.tabular import write_page

HOSTILE = "<script>alert('\"')</script>&$x_1$"
SECTIONS = ["Verdict", "Held-out rows", "Columns that matter", "Partial dependence", "Columns"]


@pytest.fixture(scope="module")
def page(fitted, tmp_path_factory):
    return write_page(fitted, tmp_path_factory.mktemp("page") / "model.html")


def renamed(fitted, old, new):
    """The model with another name of a column, and of its target."""
    columns = [
        dataclasses.replace(column, name=new) if column.name == old else column
        for column in fitted.schema.columns
    ]
    schema = Schema(tuple(columns), fitted.schema.dropped)
    outcome = dataclasses.replace(fitted.outcome, name=new)
    return dataclasses.replace(fitted, schema=schema, outcome=outcome, remarks=(new,))


def test_the_page_tells_verdict_scores_and_columns(page, fitted):
    text = page.read_text()
    for words in (fitted.verdict, "20 rows were held out", "without any column", "an identifier"):
        assert words in text
    assert text.count("<figure") == 2 + 4


def test_nothing_is_fetched_and_no_script_runs(page):
    text = page.read_text()
    assert "<script" not in text
    assert not re.search(r"(src|href)=\"(?!#|data:image/)", text)
    assert "url(" not in text


@pytest.mark.parametrize("name", [HOSTILE, "价格", "x" * 300])
def test_names_of_any_kind_do_no_harm(fitted, tmp_path, name):
    text = write_page(renamed(fitted, "x", name), tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert text.count("<figure") == 2 + 4


def test_without_held_out_rows_the_page_says_so(fitted, tmp_path):
    blind = dataclasses.replace(fitted, scores=None, held_out=False)
    text = write_page(blind, tmp_path / "page.html").read_text()
    assert "nothing is known of how new rows are predicted" in text
    assert "training rows are predicted" in text


@needs_browser
@pytest.mark.parametrize("width", [1000, 400])
def test_the_page_fits_a_screen_and_a_phone(page, tmp_path, width):
    found = seen(page, tmp_path, width)
    assert found["width"] == width
    assert found["overflow"] == 0
    assert found["headings"][:5] == SECTIONS
    assert len(found["images"]) == 6
    assert all(found["images"])


@needs_browser
def test_long_names_fit_a_phone(fitted, tmp_path):
    found = seen(write_page(renamed(fitted, "x", "x" * 300), tmp_path / "p.html"), tmp_path, 400)
    assert found["overflow"] == 0


@needs_browser
@pytest.mark.parametrize(("scheme", "dark"), [(1, False), (0, True)])
def test_the_page_is_painted_in_the_readers_scheme(page, tmp_path, scheme, dark):
    picture = tmp_path / "screen.png"
    preference = f"--blink-settings=preferredColorScheme={scheme}"
    browse(page, tmp_path, f"--screenshot={picture}", preference)
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert (pixels[0, 0].mean() < 64) == dark
    # The curves of the figures, in their blue.
    blue = (58, 154, 224) if dark else (0, 114, 178)
    assert (pixels == blue).all(axis=2).sum() > 300
