"""Before training: modes, curvature, exploration; coordinates that suit the target."""

from follmer.warmup.gaussian import as_gaussian
from follmer.warmup.preconditioners import PRECONDITIONERS, warm_up
from follmer.warmup.start import Start
from follmer.warmup.structured import structured_start

__all__ = ["PRECONDITIONERS", "Start", "as_gaussian", "structured_start", "warm_up"]
