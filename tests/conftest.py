"""Shapes and types of the library are checked at run time in the tests only."""

import jax
import pytest
from jaxtyping import install_import_hook

with install_import_hook("follmer", "beartype.beartype"):
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
