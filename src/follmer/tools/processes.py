"""Processes that run one fit together: what one of them decides, or cannot do, all know.

Programs on a mesh of several processes are run by all of them in step. So what the clock or a file
decides is decided by the first, and what may differ is compared beforehand. This goes through
JAX's coordination service, not through devices: nothing is waited for without an end.
"""

import importlib.metadata
import itertools
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # JAX offers no other way to its coordination service.
from threadpoolctl import threadpool_info

from follmer.errors import InputError, ProcessError, difference, in_a_line
from follmer.tools.mesh import PLACEMENT

# Seconds that a process waits for the others: they may still be reading their data.
PATIENCE = 300.0

_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax")

_T = TypeVar("_T")
# What processes tell each other is numbered: all do the same things in the same order.
_number = itertools.count()


def in_step() -> bool:
    """Whether programs are run by several processes together."""
    now = PLACEMENT.get()
    return now is not None and now.num_processes > 1


def first_says(value: _T) -> _T:
    """A plain value as the first process has it."""
    return _of_first(value) if in_step() else value


def by_first(action: Callable[[], object]) -> None:
    """Let the first process alone do it; if it fails, all do."""
    if not in_step():
        action()
        return
    failure: Exception | None = None
    if jax.process_index() == 0:
        try:
            action()
        except Exception as error:
            failure = error
    words = _of_first("" if failure is None else in_a_line(failure))
    if failure is not None:
        raise failure
    if words:
        raise ProcessError(f"the first process failed: {words}")


def bytes_of_first(read: Callable[[], bytes]) -> bytes:
    """What the first process reads."""
    found: list[bytes] = []
    by_first(lambda: found.append(read()))
    from jax.experimental.multihost_utils import broadcast_one_to_all

    size = _of_first(len(found[0]) if found else 0)
    own = np.frombuffer(found[0], np.uint8) if found else np.zeros(size, np.uint8)
    return np.asarray(broadcast_one_to_all(own)).astype(np.uint8).tobytes()


@contextmanager
def failing_together(num_processes: int) -> Iterator[None]:
    """Around a program of several processes, which cannot go on without one of them."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if num_processes == 1:
            raise
        raise ProcessError(
            f"a program that {num_processes} processes run together failed: {in_a_line(error)}",
            cause="another process was killed or has failed; its own log tells",
            hint="all of them started again, with fit(…, checkpoint=folder, resume=True)",
        ) from error


def total_of_all(value: int, modulus: int) -> int:
    """The sum of what every process has."""
    name = _name()
    _client().key_value_set(f"{name}/{jax.process_index()}", str(value))
    total = 0
    if jax.process_index() == 0:
        parts = [_awaited(f"{name}/{i}", f"process {i}") for i in range(jax.process_count())]
        total = sum(map(int, parts)) % modulus
    return int(_of_first(str(total)))


@contextmanager
def in_agreement(on_a_mesh: bool) -> Iterator[dict[str, Any]]:
    """Compare what processes put into the dictionary, and their versions, at the end of the block.

    Where they differ, or the block raises on one of them, all of them raise.
    """
    told: dict[str, Any] = {}
    try:
        yield told
    except Exception as error:
        if on_a_mesh and jax.process_count() > 1:
            _meet(None, in_a_line(error))
        raise
    now = PLACEMENT.get()
    if now is not None and in_step():
        whole = {**versions(), "mesh": now.describe(), **told}
        complaints = _meet(json.loads(json.dumps(whole, default=str)), "")
        if complaints:
            raise InputError(
                "the processes cannot run together. " + "; ".join(complaints) + ".",
                cause="they were started with other arguments, data or packages",
                hint="the same script, environment and kind of machine for every process",
            )


def versions() -> dict[str, Any]:
    """What the numbers that a process computes depend on."""
    packages = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {
        "versions": {"python": platform.python_version(), **packages},
        # Another kind of processor rounds otherwise, and so may decide otherwise.
        "machine": [platform.machine(), *{one.get("architecture") for one in threadpool_info()}],
        "64 bit": bool(jax.config.values["jax_enable_x64"]),
    }


def _meet(told: Mapping[str, Any] | None, failure: str) -> list[str]:
    """Compare with the first process and wait for all; what is wrong, by process."""
    name, own = _name(), jax.process_index()
    if own == 0:
        _client().key_value_set(f"{name}/first", json.dumps(told))
    first = json.loads(_awaited(f"{name}/first", "the first process"))
    if failure:
        words = failure
    elif first is None or first == told:
        words = ""
    else:
        words = f"other than on the first are {difference(first, dict(told or {}))}"
    if words:
        _client().key_value_set(f"{name}/complaints/{own}", f"process {own}: {words}")
    try:
        _client().wait_at_barrier(f"{name}/met", int(1e3 * PATIENCE))
    except jax.errors.JaxRuntimeError as error:
        raise _left_alone("another process") from error
    return sorted(text for _, text in _client().key_value_dir_get(f"{name}/complaints/"))


def _of_first(value: Any) -> Any:
    name = _name()
    if jax.process_index() == 0:
        _client().key_value_set(name, json.dumps(value))
        return value
    return json.loads(_awaited(name, "the first process"))


def _awaited(name: str, whom: str) -> str:
    try:
        return _client().blocking_key_value_get(name, int(1e3 * PATIENCE))
    except jax.errors.JaxRuntimeError as error:
        raise _left_alone(whom) from error


def _left_alone(whom: str) -> ProcessError:
    return ProcessError(
        f"{whom} was not heard of for {PATIENCE:g} seconds.",
        cause="it has ended, or runs something else",
        hint="its own log; the same script for every process",
    )


def _name() -> str:
    return f"follmer/{next(_number)}"


def _client() -> Any:
    return distributed.global_state.client
