"""Shapes and types of the inner packages are checked at run time, in the tests only.

The entry points are left alone: their own checks of bad input are what the tests look at.
"""

import jax
import pytest
from jaxtyping import install_import_hook

CHECKED = ["follmer.drifts", "follmer.objectives", "follmer.paths", "follmer.diagnostics"]

with install_import_hook(CHECKED, "beartype.beartype"):
    import follmer  # noqa: F401


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """No progress bars in the tests' output."""
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.fixture
def x64():
    """64-bit floats for one test."""
    with jax.enable_x64(True):
        yield
