"""The library's own exceptions: each says what happened, the likely cause and what to try."""

import difflib
import importlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class FollmerError(Exception):
    """Base class of every exception raised by follmer."""

    def __init__(self, what: str, *, cause: str = "", hint: str = ""):
        parts = [what, cause and f"Likely cause: {cause}", hint and f"Try: {hint}"]
        super().__init__("\n".join(part for part in parts if part))


class InputError(FollmerError, ValueError):
    """An argument cannot be used as given."""


class NonFiniteError(FollmerError, ArithmeticError):
    """A density, gradient or loss is infinite or not a number."""


class FileError(FollmerError, OSError):
    """A file is missing, truncated, foreign or does not fit the target."""


class ProcessError(FollmerError, RuntimeError):
    """Another process of a fit that several run together has failed, or is gone."""


def closest(name: str, options: Iterable[str]) -> str:
    """A hint that lists the options, with the nearest one first."""
    options = sorted(options)
    near = difflib.get_close_matches(name, options, n=1)
    listing = ", ".join(options)
    return f"{near[0]!r}? The options are: {listing}" if near else f"one of: {listing}"


def in_a_line(error: Exception) -> str:
    """What kind of error it is and the first line of what it says."""
    first_line = str(error).split("\n", 1)[0]
    return f"{type(error).__name__}: {first_line}"


def difference(found: Any, wanted: Any) -> str:
    """Where two values differ, in words; of dictionaries, the entries that do."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        changed = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
        parts = [(name, found.get(name), wanted.get(name)) for name in changed]
        return ", ".join(f"{name} {_entry_difference(old, new)}" for name, old, new in parts)
    return f"{found!r} → {wanted!r}"


def _entry_difference(found: Any, wanted: Any) -> str:
    both_nested = isinstance(found, dict) and isinstance(wanted, dict)
    return f"({difference(found, wanted)})" if both_nested else f"{found!r} → {wanted!r}"


def unknown_option(name: str, options: Iterable[str]) -> InputError:
    return InputError(
        f"{name!r} is not an option here.",
        cause="a misspelt or unsupported argument",
        hint=closest(name, options),
    )


def optional_module(name: str, *, extra: str, purpose: str) -> ModuleType:
    """The module of an optional package, or an error that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"{purpose} needs {name.partition('.')[0]}, which cannot be imported: {error}.",
            cause="it is not installed",
            hint=f"pip install 'follmer[{extra}]'",
        ) from error


def user_stack_level() -> int:
    """The stack level, for `warnings.warn`, of the first caller outside the library."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("follmer"):
        frame, level = frame.f_back, level + 1
    return level
