"""What the code of the site's pages prints, written into the pages.

python -m benchmarks.outputs docs/index.md docs/guides/*.md

The Python blocks of a page are one program. A block ```text title="prints" after one of them holds
what that one printed.
"""

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_CODE = r"```python[^\n]*\n(.*?)```\n"
_PRINTS = '```text title="prints"\n'
_BLOCK = re.compile(_CODE + rf"(?:\n{_PRINTS}(.*?)```\n)?", re.DOTALL)


class Block(NamedTuple):
    """One block of code and what the page says that it prints; None where it says nothing."""

    code: str
    printed: str | None
    # Where the printed text stands in the page.
    span: tuple[int, int]


def blocks(text: str) -> list[Block]:
    """The blocks of a page, in their order."""
    return [Block(found[1], found[2], found.span(2)) for found in _BLOCK.finditer(text)]


def run(page: Path) -> Iterator[tuple[Block, str]]:
    """Every block of a page with what it prints, run one after the other as one program."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page.read_text()), 1):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile(block.code, f"{page}, block {number}", "exec"), names)
        yield block, told.getvalue()


def rewritten(page: Path) -> str:
    """The page with what its blocks print now."""
    text = page.read_text()
    # From the end, so that places before it stay.
    for block, told in reversed(list(run(page))):
        if block.printed is not None:
            start, end = block.span
            lines = [line.rstrip() for line in told.strip("\n").splitlines()]
            text = text[:start] + "\n".join(lines) + "\n" + text[end:]
    return text


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(rewritten(page))
        print(page.name)


if __name__ == "__main__":
    main()
