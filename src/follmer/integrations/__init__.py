"""Other libraries' models as targets; each is imported only when it is used."""

from follmer.integrations.numpyro import from_numpyro

__all__ = ["from_numpyro"]
