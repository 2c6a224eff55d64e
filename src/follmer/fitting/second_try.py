"""Where draws from the mode do not reach the posterior: explore, and keep what is better."""

from collections.abc import Callable

import jax
from jaxtyping import PRNGKeyArray

from follmer.judging.diagnostics import verdict
from follmer.posterior.posterior import Posterior

_REFUSED = "do not use"


def second_try(
    first: Posterior, explore: Callable[[PRNGKeyArray], Posterior], key: PRNGKeyArray
) -> Posterior:
    """The first posterior where it can be used, else what an exploration makes of the target."""
    explore_key, *judge_keys = jax.random.split(key, 3)
    if _name(first, judge_keys[0]) != _REFUSED:
        return first
    second = explore(explore_key)
    if _name(second, judge_keys[1]) == _REFUSED:
        return _told(first, "an exploration did not reach the posterior either", second)
    return _told(second, "draws from the mode did not reach the posterior", first)


def _name(posterior: Posterior, key: PRNGKeyArray) -> str:
    return verdict(posterior.diagnostics(key=key), posterior.second_opinion).name


def _told(kept: Posterior, note: str, other: Posterior) -> Posterior:
    gradients = (kept.gradient_evaluations or 0) + (other.gradient_evaluations or 0)
    return kept.retold(notes=(*kept.notes, note), gradient_evaluations=gradients)
