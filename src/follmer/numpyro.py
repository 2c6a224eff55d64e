"""For NumPyro's own loops: a guide for SVI."""

from follmer.integrations.autoguide import AutoFollmer, FollmerPath
from follmer.integrations.numpyro import from_numpyro

__all__ = ["AutoFollmer", "FollmerPath", "from_numpyro"]
