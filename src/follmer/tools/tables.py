"""Tables for people, and what the numbers in them were measured on."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

_PACKAGES = ("follmer", "jax", "numpyro", "optax", "numpy")


def machine(command: str) -> dict[str, Any]:
    """The command, the date and what the numbers depend on."""
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}, JAX on {jax.default_backend()}",
        "precision": f"{jnp.finfo(jnp.result_type(float)).bits} bit",
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }


def commit() -> str:
    """The commit that the package is at, with a + where files differ from it; "" outside git."""
    folder = Path(__file__).parent
    told = [
        subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=False)
        for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--", "../.."))
    ]
    if any(one.returncode for one in told):
        return ""
    return told[0].stdout.strip() + ("+" if told[1].stdout.strip() else "")


def header(measured_on: Mapping[str, Any]) -> str:
    """One line for each thing the numbers depend on."""
    versions = ", ".join(f"{name} {version}" for name, version in measured_on["versions"].items())
    lines = {**measured_on, "versions": versions}
    return "\n".join(f"{name + ':':<11}{value}" for name, value in lines.items())


def markdown(rows: Sequence[Mapping[str, str]], *, left: Collection[str]) -> str:
    """An aligned Markdown table, the columns in `left` flush left and all others flush right.

    Every row has the same columns; those with nothing to say are left out.
    """
    if not rows:
        return ""
    rows = [{name: _escaped(text) for name, text in row.items()} for row in rows]
    headings = [name for name in rows[0] if any(row[name] for row in rows)]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in headings}

    def line(cells: Mapping[str, str]) -> str:
        padded = [
            f"{cells[name]:<{widths[name]}}" if name in left else f"{cells[name]:>{widths[name]}}"
            for name in headings
        ]
        return f"| {' | '.join(padded)} |"

    rules = {
        name: "-" * widths[name] if name in left else "-" * (widths[name] - 1) + ":"
        for name in headings
    }
    return "\n".join([line({name: name for name in headings}), line(rules), *map(line, rows)])


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
