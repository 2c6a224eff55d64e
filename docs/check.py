"""The built site, looked over: python docs/check.py site.

Every relative link leads to a file, and to a place in it where it names one; nothing that a page
loads comes from elsewhere, so the site works offline.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

# Attributes that load something when the page is opened.
LOADING = {
    ("img", "src"),
    ("script", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("link", "href"),
}
# Links of <link> that load nothing.
HARMLESS = {"canonical", "prev", "next", "alternate"}


class Page(NamedTuple):
    """What one page links to and loads, and the places in it that can be linked to."""

    links: list[str]
    loaded: list[str]
    places: set[str]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], [], {""})

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value is not None}
        self.page.places.update(found[name] for name in ("id", "name") if name in found)
        if tag == "link" and found.get("rel") in HARMLESS:
            return
        for name in ("href", "src"):
            if name in found:
                loads = (tag, name) in LOADING
                (self.page.loaded if loads else self.page.links).append(found[name])


def read(path: Path) -> Page:
    reader = Reader()
    reader.feed(path.read_text())
    return reader.page


def problems(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if name.name == "404.html":  # its links start at the root of wherever the site is put
            continue
        found += [
            f"{name} loads {url}"
            for url in page.loaded
            if urlsplit(url).scheme in ("http", "https")
        ]
        for url in [*page.links, *page.loaded]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            file, place = urldefrag(unquote(url.partition("?")[0]))
            place = place or unquote(parts.fragment)
            goal = path if not file else (path.parent / file).resolve()
            if goal.is_dir():
                goal /= "index.html"
            if not goal.is_file():
                found.append(f"{name} leads to {file}, which does not exist")
            elif goal in pages and place not in pages[goal].places:
                found.append(f"{name} leads to {file}#{place}, and there is no such place")
    return found


def main() -> None:
    site = Path(sys.argv[1])
    found = problems(site)
    print(
        "\n".join(found)
        or f"{sum(1 for _ in site.rglob('*.html'))} pages, every link leads somewhere"
    )
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
