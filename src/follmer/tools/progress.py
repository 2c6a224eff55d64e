"""Long loops on the device, seen from the host: how much at a time, until when, and a bar."""

import math
import sys
import time
from collections.abc import Callable

import numpy as np
from tqdm.auto import tqdm

from follmer.tools.processes import first_says

# Is told what begins or has ended, in a line.
Progress = Callable[[str], object]

# The device is asked for about this many seconds of work at a time.
SECONDS_PER_CALL = 0.5
# Seconds between two lines where the bar does not stand in a terminal.
_SECONDS_PER_LINE = 10.0
# Bars of things that are mostly quick appear after so many seconds.
_DELAY = 2.0


class Pace:
    """How many iterations the next call to the device should run, from how long others took."""

    def __init__(self) -> None:
        self.count = 1
        self._compiled = False

    def took(self, count: int, seconds: float) -> None:
        """Learn from a call of `count` iterations."""
        # The first call compiles, so it says nothing about speed.
        if self._compiled:
            wanted = SECONDS_PER_CALL * count / max(seconds, 1e-9)
            self.count = first_says(int(np.clip(wanted, 1, 4 * self.count)))
        else:
            self._compiled, self.count = True, 2


class Deadline:
    """A moment after which nothing new is begun; never, without a number of seconds."""

    def __init__(self, seconds: float | None = None):
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def __call__(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and first_says(time.monotonic() >= self._end)


NEVER = Deadline()


class Telling:
    """A line that says what is being done before there is anything to count; gone at the end.

    In a log, where lines stay, nothing is told.
    """

    def __init__(self, visible: bool):
        shown = visible and sys.stderr.isatty()
        options: dict[str, object] = {} if shown else {"disable": True}
        self._line = tqdm(bar_format="follmer: {desc} [{elapsed}]", leave=False, **options)

    def __enter__(self) -> "Telling":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def tell(self, words: str) -> None:
        """What is being done at the moment."""
        self._line.set_description_str(words)


class Bar:
    """tqdm, off the device. With `late`, it appears only where things take their time."""

    def __init__(
        self,
        total: int,
        *,
        done: int = 0,
        visible: bool = True,
        name: str = "follmer",
        unit: str = "it",
        late: bool = False,
    ):
        # Left out when visible, so that the variable TQDM_DISABLE is heeded.
        options: dict[str, object] = {} if visible else {"disable": True}
        if late:
            options |= {"delay": _DELAY, "leave": False}
        if not sys.stderr.isatty():
            options |= {"mininterval": _SECONDS_PER_LINE, "maxinterval": _SECONDS_PER_LINE}
        self._bar = tqdm(total=total, initial=done, desc=name, unit=unit, **options)
        self._shown: dict[str, str] = {}

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, count: int, **values: float) -> None:
        """So much more is done."""
        self._bar.update(count)
        if values:
            self.show(**values)

    def extend(self, count: int) -> None:
        """So much more is to be done."""
        self._bar.total += count

    def show(self, **values: float) -> None:
        """Values beside the bar, when it is drawn next."""
        names = {"elbo": "ELBO", "ess": "ESS"}
        for name, value in values.items():
            self._shown[names.get(name, name)] = f"{value:.0%}" if name == "ess" else f"{value:.4g}"
        self._bar.set_postfix(self._shown, refresh=False)

    def tell(self, words: str) -> None:
        """What is being done at the moment."""
        self._bar.set_description(words, refresh=False)
