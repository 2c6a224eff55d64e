"""Before training: modes, curvature, exploration; coordinates that suit the target."""

from follmer.plans.gaussian import as_gaussian
from follmer.plans.preconditioners import PRECONDITIONERS, warm_up
from follmer.plans.start import Start
from follmer.plans.structured import structured_start

__all__ = ["PRECONDITIONERS", "Start", "as_gaussian", "structured_start", "warm_up"]
