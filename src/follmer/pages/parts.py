"""The frame of a page, and its smallest parts."""

import html
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING, FAILED = "nothing measured", "failed"
_BADGES = {
    "trustworthy": ("good", "✓"),
    "good for predictions": ("good", "✓"),
    "use the weights": ("fair", "≈"),
    "no proof of quality": ("fair", "?"),
    "do not use": ("bad", "✗"),
    NOTHING: ("bad", "✗"),
    FAILED: ("bad", "✗"),
}


def page(*, title: str, header: str, main: str, footer: str) -> str:
    """A whole page; `title` is plain text, the other parts are HTML."""
    style = (importlib.resources.files("follmer.pages") / "page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
{header}
</header>
<main>
{main}
</main>
<footer>
{footer}
</footer>
</body>
</html>
"""


def text(words: str) -> str:
    """The words as HTML."""
    return html.escape(words)


def plain(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def notes(remarks: Iterable[str]) -> str:
    """A list of remarks; empty where there are none."""
    items = "".join(f"<li>{text(remark)}</li>" for remark in remarks)
    return f'<ul class="notes">{items}</ul>' if items else ""


def facts(named: Mapping[str, Any]) -> str:
    """A list of names with their values."""
    items = (f"<dt>{text(k)}</dt><dd>{text(plain(v))}</dd>" for k, v in named.items())
    return f"<dl>{''.join(items)}</dl>"


def badge(verdict: str, share: str = "") -> str:
    """A verdict in its colour."""
    kind, sign = _BADGES.get(verdict, ("other", "·"))
    return f'<span class="badge {kind}">{sign} {text(verdict)}{text(share)}</span>'
