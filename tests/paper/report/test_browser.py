"""The page in a real browser, where there is one."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from made_up import record, write
from PIL import Image

from follmer.paper.report import write_page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = pytest.mark.skipif(not BROWSER, reason="there is no chromium or google-chrome here")

# Run by the test alone, in a copy of the page, framed because browsers have a least width.
LOOK = """<script>addEventListener("load", () => {
  const images = [...document.images].map(image => image.complete && image.naturalWidth);
  const headings = [...document.querySelectorAll("h2")].map(heading => heading.textContent);
  const page = document.documentElement;
  const tables = [...document.querySelectorAll("table")].map(table => table.rows.length);
  const overflow = page.scrollWidth - page.clientWidth;
  parent.document.title = JSON.stringify({images, headings, tables, overflow, width: innerWidth});
})</script>"""


def browse(page, tmp_path, *options):
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,2400"),
        *(*options, page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(page, tmp_path, width):
    frame = page.with_name("frame.html")
    inner = html.escape(page.read_text().replace("</head>", f"{LOOK}</head>"))
    style = f"border: 0; width: {width}px; height: 800px"
    frame.write_text(f'<title></title><iframe style="{style}" srcdoc="{inner}"></iframe>')
    dom = browse(frame, tmp_path, "--dump-dom")
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom)[1]))


def test_headings_tables_and_images_are_there_on_a_screen(run, tmp_path):
    found = seen(write_page(run), tmp_path, width=1000)
    assert found["headings"][:2] == ["Banana-shaped classes", "Linear regression"]
    assert found["images"] == [400, 300]  # 300 points are 400 pixels
    # A heading, three rows of ours and three of the paper's.
    assert found["tables"][0] == 7
    assert found["overflow"] == 0


def test_the_page_fits_a_phone(run, tmp_path):
    long = "x" * 300
    settings = {"verdict": long, "notes": [long], "option": long}
    write(run, results=[record("banana", accuracy=0.5, settings=settings)])
    found = seen(write_page(run), tmp_path, width=400)
    assert found["width"] == 400
    assert found["overflow"] == 0


@pytest.mark.parametrize(("scheme", "dark"), [(1, False), (0, True)])
def test_both_figures_are_painted_on_paper_of_the_readers_scheme(run, tmp_path, scheme, dark):
    picture = tmp_path / "screen.png"
    browse(
        *(write_page(run), tmp_path, f"--screenshot={picture}"),
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert pixels.shape == (2400, 1000, 3)
    for colour in ((255, 0, 255), (0, 255, 0)):
        assert (pixels == colour).all(axis=2).sum() > 100 * 100
    assert (pixels[0, 0].mean() < 64) == dark
