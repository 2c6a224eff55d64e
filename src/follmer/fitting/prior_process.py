"""The first of two stages: the prior's own process, which then serves any data."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from follmer.fitting.fit import fit
from follmer.fitting.request import check_options
from follmer.paths import SHARED
from follmer.plans.gaussian import as_gaussian
from follmer.posterior.posterior import Posterior
from follmer.posterior.samplers import Flow
from follmer.process import Process
from follmer.targets import Target, as_target
from follmer.tools.checks import as_key, options_checked
from follmer.tools.keys import named_keys

# Data narrow a prior: small steps at the end leave the second stage room. Of the network alone, the
# second stage has exact derivatives, and the prior's density is not evaluated again.
_SETTINGS: Mapping[str, Any] = {"drift": "time_mlp", "grid": "geometric", "num_steps": 32}


@options_checked
def prior_process(target: Target, *, key: PRNGKeyArray, **options: Any) -> Posterior:
    """The process that ends in the target's prior: `fit(target, reference=process, key=key)`.

    One process serves all data sets with that prior: it does not see the data. It is a `Posterior`,
    to be judged by its summary and saved like any other; `sample` draws from the prior.

    A prior that is Gaussian in unconstrained coordinates has its process in closed form; any other
    is fitted. `target` may be the prior itself, as a log density, or a target with data. `options`
    are those of `fit`; with a `precondition` of your own the prior is fitted in any case.
    """
    prior = as_target(target).prior
    check_options(options)
    look_key, fit_key = named_keys(as_key(key), "look", "fit")
    settings = {**_SETTINGS, **options}
    affine = None if "precondition" in options else as_gaussian(prior, look_key)
    if affine is None:
        return fit(prior, key=fit_key, **settings)
    shared = {name: settings[name] for name in SHARED if name in settings}
    gamma = Process(prior, **shared).gamma
    affine = eqx.tree_at(lambda one: one.scale, affine, affine.scale / math.sqrt(gamma))
    process = Process(prior.whitened(affine), drift="zero", **shared)
    flow = Flow(process, process.parameters(fit_key))
    return Posterior(prior, flow, notes=("a Gaussian, in closed form",))
