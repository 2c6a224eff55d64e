"""Compiled functions: where they run, and how many programs they may keep.

A program is kept for every model and shape it was compiled for, so that fits of the same model on
other data compile nothing. A process that fits hundreds of different models would run out of memory
maps: now and then all programs are forgotten.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.sharding import Mesh

from follmer.errors import FileError
from follmer.tools.mesh import PLACEMENT, TRACED, everywhere, traced_on
from follmer.tools.processes import failing_together

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Result = TypeVar("_Result")

# Programs kept at once: each takes up to 200 of the 65 530 memory maps that Linux gives a process.
_MOST = 128

_COMPILED: list["Program"] = []

# Seconds of compilation from which a program is worth a file.
_WORTH_KEEPING = 0.1


class Program:
    """A function compiled by `eqx.filter_jit` for each model, shape and mesh."""

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)

        @functools.wraps(function)
        def on(mesh: Mesh | None, /, *args: Any, **kwargs: Any) -> Any:
            if mesh is None:
                return function(*args, **kwargs)
            with traced_on(mesh):
                return everywhere(function(*args, **kwargs))

        # `filter_jit` must not look through to the function's own signature.
        del on.__wrapped__
        self._on = eqx.filter_jit(on)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if TRACED.get() is not None:
            # A part of another program on a mesh.
            return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
        where = PLACEMENT.get()
        if where is None:
            return self._on(None, *args, **kwargs)
        with failing_together(where.num_processes):
            args, kwargs = where.arrived((args, kwargs))
            return where.returned(self._on(where.mesh, *args, **kwargs))

    def where_it_runs(self) -> Callable[..., Any]:
        """What a call comes to, from here on: without a mesh, the compiled function itself."""
        is_plain = PLACEMENT.get() is None and TRACED.get() is None
        return functools.partial(self._on, None) if is_plain else self

    def hlo(self, *args: Any, **kwargs: Any) -> str:
        """The text of the program that a call would run."""
        where = PLACEMENT.get()
        if where is not None:
            args, kwargs = where.arrived((args, kwargs))
        lowered = self._on.lower(where and where.mesh, *args, **kwargs)  # type: ignore[attr-defined]
        return lowered.compile().compiled.as_text()

    @property
    def count(self) -> int:
        """Programs that are kept."""
        return self._on._cached._cache_size()  # type: ignore[attr-defined]

    def forget(self) -> None:
        """Keep none of them."""
        self._on._cached.clear_cache()  # type: ignore[attr-defined]


def compiled(function: _Function) -> _Function:
    """The function as a `Program` that is known to `tidy`."""
    program: Any = Program(function)
    _COMPILED.append(program)
    return program


def bound(function: Callable[..., _Result], *args: Any, **kwargs: Any) -> Callable[..., _Result]:
    """The function with its first arguments, for a loop that calls it often.

    Where a program runs is looked up once, here.
    """
    run = function.where_it_runs() if isinstance(function, Program) else function
    return functools.partial(run, *args, **kwargs)


def enable_compilation_cache(folder: str | Path | None = None) -> Path:
    """Keep compiled programs in a folder, so that another process need not compile them again.

    By default `follmer/programs` in the user's cache. Returns the folder. It is JAX's own
    persistent cache, for all programs of the process, and may be deleted at any time.
    """
    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(cache) / "follmer" / "programs"
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"{folder} cannot be made into a folder for compiled programs: {error}.",
            hint="enable_compilation_cache(folder) with a folder that can be written",
        ) from error
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def tidy() -> None:
    """Forget all programs where there are very many."""
    if sum(one.count for one in _COMPILED) > _MOST:
        for one in _COMPILED:
            one.forget()
