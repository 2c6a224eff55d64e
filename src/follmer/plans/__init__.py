"""Where training starts and why: a ladder of strategies, from a survey of the target to a plan."""

from follmer.plans.plan import Plan
from follmer.plans.policy import POLICY, Policy
from follmer.plans.rungs import RUNGS, UnreachableError, ladder
from follmer.plans.survey import Survey

__all__ = ["POLICY", "RUNGS", "Plan", "Policy", "Survey", "UnreachableError", "ladder"]
