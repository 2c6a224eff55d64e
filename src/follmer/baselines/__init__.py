"""Other samplers, behind the same Posterior face."""

from follmer.baselines.mc_sfs import mc_sfs
from follmer.baselines.nuts import nuts
from follmer.baselines.sgd import sgd
from follmer.baselines.sgld import sgld
from follmer.baselines.step_sizes import PolynomialDecay

__all__ = ["PolynomialDecay", "mc_sfs", "nuts", "sgd", "sgld"]
