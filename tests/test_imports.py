"""Imports point one way, and the heavy packages load only when they are used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import follmer

ROOT = Path(follmer.__file__).parent
# From the bottom up; modules may import from their own row and from those above it here.
LAYERS = [
    ["errors"],
    ["tools"],
    ["columns", "pages"],
    ["targets", "paths", "mcmc"],
    ["drifts"],
    ["objectives"],
    ["nsfs", "process"],
    ["plans", "judging", "posterior"],
    ["fitting"],
    ["baselines"],
    ["integrations", "numpyro", "sklearn"],
    ["datasets", "metrics"],
    ["__version__"],  # of `follmer` itself, which imports all of the above
    ["plots"],
    ["tabular"],
    ["paper"],
    ["bench"],
    ["demo"],
    ["cli"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
EXEMPT = {"__init__", "__main__"}


def module_of(file):
    """The dotted parts below `follmer`, e.g. ["paths", "grids"]."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


MODULES = sorted(file for file in ROOT.rglob("*.py") if module_of(file)[0] not in EXEMPT)


def for_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


def statements(node):
    """Every node below this one, but for what stands under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if for_type_checking(child):
            yield from (below for other in child.orelse for below in [other, *statements(other)])
        else:
            yield child
            yield from statements(child)


def imported(source, package):
    """The top-level parts of follmer that the source of a module of that package imports."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "follmer":
                yield parts[1] if len(parts) > 1 else "follmer"


@pytest.mark.parametrize("file", MODULES, ids=lambda file: ".".join(module_of(file)))
def test_module_imports_only_from_its_own_layer_or_below(file):
    own = module_of(file)[0]
    assert own in HEIGHT, f"say in LAYERS where {own} stands"
    package = ["follmer", *file.relative_to(ROOT).parts[:-1]]
    for name in imported(file.read_text(), package):
        assert name in HEIGHT, f"{own} imports {name}, which is no module of follmer"
        assert HEIGHT[name] <= HEIGHT[own], f"{own} imports {name} from above"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from follmer.fitting.fit import fit", ["fitting"]),
        ("from follmer import storage", ["storage"]),
        ("import follmer.cli", ["cli"]),
        ("import follmer", ["follmer"]),
        ("from . import grids", ["paths"]),
        ("from ..nsfs import NSFS", ["nsfs"]),
        ("def late():\n    from follmer.demo import run", ["demo"]),
        ("if TYPE_CHECKING:\n    from follmer.cli import app", []),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from follmer.cli import app", ["cli"]),
        ("import jax", []),
    ],
)
def test_the_check_sees_every_form_of_import(source, found):
    assert list(imported(source, ["follmer", "paths"])) == found


def test_import_follmer_loads_no_heavy_package():
    heavy = [
        *["numpyro", "arviz_base", "arviz_stats", "matplotlib", "typer", "blackjax", "sklearn"],
        *[
            "scipy",
            "pooch",
            "requests",
            "PIL",
            "flax",
            "pymc",
            "pytensor",
            "arviz",
            "xarray",
            "pandas",
            "pyarrow",
        ],
    ]
    code = f"import sys, follmer; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.strip() == "[]"
