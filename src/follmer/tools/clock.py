"""How much time is left."""

import math
import time

from follmer.tools.processes import first_says


class Deadline:
    """A moment after which nothing new is begun; never, without a number of seconds."""

    def __init__(self, seconds: float | None = None):
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def __call__(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and first_says(time.monotonic() >= self._end)


NEVER = Deadline()
