"""The files of follmer that a default fit of two dimensions goes through.

    python -m benchmarks.walk

Only calls of Python functions are seen: a property counts, a line of a class body does not.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import follmer

PACKAGE = Path(follmer.__file__).parent


class Walk(NamedTuple):
    """Files of follmer in the order in which they were entered, and how often they changed."""

    files: list[str]
    passages: int  # consecutive calls into follmer whose files differ


def banana() -> follmer.Target:
    """The README's first target."""
    return follmer.Target(
        lambda x: -0.5 * x[0] ** 2 - 2 * (x[1] - x[0] ** 2) ** 2, like=jnp.zeros(2)
    )


def walked(action: Callable[[], Any]) -> Walk:
    """Run the action and note every call of a function that is written in follmer."""
    root, steps = f"{PACKAGE}/", list[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            steps.append(frame.f_code.co_filename.removeprefix(root))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    passages = sum(one != other for one, other in itertools.pairwise(steps))
    return Walk(list(dict.fromkeys(steps)), passages)


def main() -> None:
    target, key = banana(), jax.random.key(0)
    found = walked(lambda: follmer.fit(target, key=key, progress=False))
    for file in found.files:
        print(file)
    print(
        f"\n{len(found.files)} files; execution passed from one to another {found.passages} times"
    )


if __name__ == "__main__":
    main()
