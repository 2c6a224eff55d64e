"""Other samplers, behind the same Posterior face."""

from follmer.baselines.mc_sfs import mc_sfs

__all__ = ["mc_sfs"]
