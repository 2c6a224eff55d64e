"""Pages in a real browser, where there is one."""

import html
import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
needs_browser = pytest.mark.skipif(not BROWSER, reason="there is no chromium or google-chrome here")
_QUIET = (
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)

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
    """What the browser prints of a page."""
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *_QUIET),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,2400"),
        *(*options, page.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(page, tmp_path, width):
    """Images, headings, tables and overflow of a page on a screen of that width."""
    frame = page.with_name("frame.html")
    inner = html.escape(page.read_text().replace("</head>", f"{LOOK}</head>"))
    style = f"border: 0; width: {width}px; height: 800px"
    frame.write_text(f'<title></title><iframe style="{style}" srcdoc="{inner}"></iframe>')
    dom = browse(frame, tmp_path, "--dump-dom")
    return json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom)[1]))
