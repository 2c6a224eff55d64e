"""Compiled functions, and how many programs they may keep.

A program is kept for every model and shape it was compiled for, so that fits of the same model on
other data compile nothing. A process that fits hundreds of different models would run out of memory
maps: now and then all programs are forgotten.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Programs kept at once: each takes up to 200 of the 65 530 memory maps that Linux gives a process.
_MOST = 128

_COMPILED: list[Any] = []


def compiled(function: _Function) -> _Function:
    """The function, compiled by `eqx.filter_jit` for each model and shape, and known to `tidy`."""
    wrapped: Any = eqx.filter_jit(function)
    _COMPILED.append(wrapped)
    return wrapped


def tidy() -> None:
    """Forget all programs where there are very many."""
    if sum(one._cached._cache_size() for one in _COMPILED) > _MOST:
        for one in _COMPILED:
            one._cached.clear_cache()
