"""Parts of posteriors that several methods of a run need, and how long each took."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

_Part = TypeVar("_Part")


class Parts:
    """What was made for the present target, key and options; a run hands it to its methods.

    A method's seconds are those of all parts that it needs: `earlier` are the seconds of those that
    another method has made before, so a part counts in each method that needs it.
    """

    def __init__(self) -> None:
        self._of: tuple[Any, bytes, Any] | None = None
        self._made: dict[str, tuple[Any, float]] = {}
        self._counted: set[str] = set()
        self.earlier = 0.0

    def begin(self, target: Any, key: PRNGKeyArray, options: Any = None) -> None:
        """A method begins; all is forgotten where its target, key or options are others."""
        asked = (target, np.asarray(jax.random.key_data(key)).tobytes(), options)
        if self._of is None or self._of[0] is not target or self._of[1:] != asked[1:]:
            self._of, self._made = asked, {}
        self._counted, self.earlier = set(), 0.0

    def part(self, name: str, make: Callable[[], _Part]) -> _Part:
        """The part of that name, made where there is none yet."""
        if name in self._made:
            value, seconds = self._made[name]
            self.earlier += 0.0 if name in self._counted else seconds
        else:
            began = time.perf_counter()
            value = make()
            self._made[name] = value, time.perf_counter() - began
        self._counted.add(name)
        return value
