"""The page in a real browser, where there is one."""

import numpy as np
import pytest
from PIL import Image

from browsing import browse, needs_browser, seen
from follmer.paper.report import write_page
from made_up import record, write

pytestmark = needs_browser


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
