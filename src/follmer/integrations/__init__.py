"""Other libraries' models as targets; each is imported only when it is used."""

from follmer.integrations.numpyro import from_numpyro
from follmer.integrations.pymc import from_pymc

__all__ = ["from_numpyro", "from_pymc"]
