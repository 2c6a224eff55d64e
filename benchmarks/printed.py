"""What benchmarks print, kept as records and shown in the pages.

    python -m benchmarks.printed step --torch PYTHON
    python -m benchmarks.printed

The first runs `python -m benchmarks.step --torch PYTHON` and writes what it prints to
docs/results/bench/printed/step.json; the second writes every such record into the pages, in place
of the blocks that begin with its command.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.page import DOCS, RECORDS
from follmer.tools.storage import replacing
from follmer.tools.tables import machine

FOLDER = RECORDS / "printed"
_BLOCK = re.compile(
    r"^```(?:text)?\n\$ python -m benchmarks\.(\w+).*?^```$", re.DOTALL | re.MULTILINE
)


def keep(name: str, options: Sequence[str]) -> None:
    """Run a benchmark, show what it prints as it comes, and keep it."""
    # Paths of this machine mean nothing elsewhere.
    told = ["PYTHON" if "/" in option else option for option in options]
    measured_on = machine(" ".join(["python -m", f"benchmarks.{name}", *told]))
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        raise SystemExit(process.returncode)
    content = {"machine": measured_on, "printed": lines}
    with replacing(FOLDER / f"{name}.json") as file:
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode())


def block(record: dict[str, Any]) -> str:
    """A record as a page shows it: the command, what it was measured on, and what it printed."""
    on = record["machine"]
    where = f"{on['date']}, commit {on['commit']}, {on['cores']} cores, jax {on['versions']['jax']}"
    return "\n".join(["```", f"$ {on['command']}", f"# {where}", *record["printed"], "```"])


def rewritten(text: str) -> str:
    """A page with its blocks as the records have them."""

    def shown(found: re.Match[str]) -> str:
        return block(json.loads((FOLDER / f"{found[1]}.json").read_text()))

    return _BLOCK.sub(shown, text)


def pages() -> Iterator[Path]:
    """Those that show what a benchmark printed."""
    return (page for page in sorted(DOCS.rglob("*.md")) if _BLOCK.search(page.read_text()))


def main() -> None:
    if len(sys.argv) > 1:
        keep(sys.argv[1], sys.argv[2:])
        return
    for page in pages():
        page.write_text(rewritten(page.read_text()))
        print(page)


if __name__ == "__main__":
    main()
