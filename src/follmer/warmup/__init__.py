"""Before training: modes, curvature, exploration; coordinates that suit the target."""

from follmer.warmup.preconditioners import PRECONDITIONERS, warm_up
from follmer.warmup.start import Start

__all__ = ["PRECONDITIONERS", "Start", "warm_up"]
