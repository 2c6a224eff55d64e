"""A posterior as an ArviZ DataTree."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError
from follmer.judging import pareto_smooth
from follmer.mcmc.resampling import systematic
from follmer.posterior.samplers import DRAWS_EXPORTED, AbstractSampler
from follmer.targets import AbstractTarget, Density
from follmer.targets.observations import labels, log_likelihoods, observed_data, replicates
from follmer.targets.space import named_leaves
from follmer.tools.keys import generator

if TYPE_CHECKING:
    import xarray

# Weights that can be relied on.
_SOUND_KHAT = 0.7
# Differences of log weights that single precision makes.
_ROUNDING = 1e-4
# Draws made for each that is chosen by weight.
PROPOSALS = 4


class Exported(NamedTuple):
    """Draws by chain, in flat coordinates, and the weights that they still need."""

    x: Float[Array, "chains draws dim"]
    log_weights: Float[np.ndarray, "chains draws"]
    resampled: bool
    judged: Float[np.ndarray, " proposals"]  # the log weights of all that were drawn

    @property
    def flat(self) -> Float[Array, "draws dim"]:
        return self.x.reshape(-1, self.x.shape[-1])


class Wanted(NamedTuple):
    """What goes into the tree beside the draws."""

    log_likelihood: bool
    posterior_predictive: bool
    dims: Mapping[str, Sequence[str]]
    coords: Mapping[str, Any]


def exported(
    sampler: AbstractSampler,
    count: int | None,
    key: PRNGKeyArray,
    num_steps: int | None,
    resampled: bool | None,
    *,
    progress: bool,
) -> Exported:
    """Draws chosen by weight, with none left; or as they come, with their weights.

    Where it is left open (None), draws are chosen if the weights are sound. Copies of one draw
    stand beside each other, so that ArviZ's effective sample size counts them less. What is chosen
    from chains of unequal shares makes one chain: ArviZ counts all draws of chains equally.
    """
    proposes = sampler.weighs and resampled is not False
    if proposes:
        count = DRAWS_EXPORTED if count is None else count
    asked = PROPOSALS * count if proposes and count is not None else count
    x, logs = sampler.by_chain(asked, key, num_steps, progress=progress)
    log_weights = np.asarray(logs, float)
    if not proposes:
        flat = log_weights.ravel()
        if resampled is False or np.ptp(flat) <= _ROUNDING:
            return Exported(x, log_weights, False, flat)
        rows = systematic(generator(key, "choice"), np.exp(flat), len(flat))
        return Exported(x.reshape(1, len(flat), -1)[:, rows], np.zeros((1, len(flat))), True, flat)
    smooth, khat = pareto_smooth(log_weights[0])
    # Not a number: too few draws to tell.
    sound = not khat > _SOUND_KHAT if resampled is None else True
    if not sound or not np.isfinite(smooth).all():
        return Exported(x[:, :count], log_weights[:, :count], False, log_weights[0])
    assert count is not None
    rows = systematic(generator(key, "choice"), np.exp(smooth), count)
    return Exported(x[:, rows], np.zeros((1, count)), True, log_weights[0])


def datatree(
    target: AbstractTarget,
    draws: Exported,
    position: PyTree,
    found: Mapping[str, Any],
    wanted: Wanted,
    key: PRNGKeyArray,
    *,
    weighs: bool,
    progress: bool,
) -> "xarray.DataTree":
    """All that is known, in ArviZ's groups.

    `target` is that of the draws' coordinates, `position` what the draws are reported as, and
    `found` the diagnostics.
    """
    shape = draws.log_weights.shape
    by_draw: dict[str, dict[str, Any]] = {"posterior": dict(named_leaves(position))}
    by_row: dict[str, dict[str, np.ndarray]] = {}
    # Chains of a network may have shares: weights too.
    uneven = np.ptp(draws.log_weights) > _ROUNDING
    stats = {"log_weight": draws.log_weights.ravel()} if weighs or uneven else {}
    if target.has_locals:
        _refuse_observations(wanted)
        known = wanted
    else:
        stats["lp"] = _log_densities(target, draws.flat)
        if wanted.log_likelihood:
            by_draw["log_likelihood"] = log_likelihoods(target, draws.flat, progress=progress)
        if wanted.posterior_predictive:
            by_draw["posterior_predictive"] = replicates(target, draws.flat, key)
        by_row["observed_data"], by_row["constant_data"] = observed_data(target)
        known = _with_labels(target, wanted)
    if stats:
        by_draw["sample_stats"] = stats
    # Files of ArviZ hold no truth values.
    facts = {name: +value for name, value in found.items()} | {"resampled": +draws.resampled}
    attributes: dict[str, dict[str, Any]] = {
        "posterior": {"inference_library": "follmer"} | ({} if weighs else facts),
        "sample_stats": facts if weighs else {},
    }
    groups = {
        name: {one: np.asarray(v).reshape(*shape, *v.shape[1:]) for one, v in values.items()}
        for name, values in by_draw.items()
    }
    return _assembled(groups, by_row, attributes, known)


def _assembled(
    by_draw: Mapping[str, Mapping[str, np.ndarray]],
    by_row: Mapping[str, Mapping[str, np.ndarray]],
    attributes: Mapping[str, Mapping[str, Any]],
    known: Wanted,
) -> "xarray.DataTree":
    import arviz_base
    import xarray

    sets = {}
    with warnings.catch_warnings():
        # Few draws of many chains are no mistake.
        warnings.filterwarnings("ignore", "Found chain dimension to be longer")
        for name, values in (*by_draw.items(), *by_row.items()):
            if not values:
                continue
            leading = ["chain", "draw"] if name in by_draw else []
            dims = {
                one: list(known.dims.get(one, ()))[: value.ndim - len(leading)]
                for one, value in values.items()
            }
            sets[name] = arviz_base.dict_to_dataset(
                values,
                attrs=dict(attributes.get(name, {})),
                dims={one: names for one, names in dims.items() if names},
                coords=dict(known.coords),
                sample_dims=leading,
            )
    return xarray.DataTree.from_dict(sets)


def _log_densities(
    target: AbstractTarget, x: Float[Array, "draws dim"]
) -> Float[np.ndarray, " draws"]:
    """The log density in the target's own unconstrained coordinates."""
    log_det = 0.0 if target.affine is None else float(target.affine.log_det)
    return Density(target).values(np.asarray(x)) - log_det


def _with_labels(target: AbstractTarget, wanted: Wanted) -> Wanted:
    """The model's own names of axes, the caller's before them."""
    own = labels(target)
    return wanted._replace(dims={**own.dims, **wanted.dims}, coords={**own.coords, **wanted.coords})


def _refuse_observations(wanted: Wanted) -> None:
    for name in ("log_likelihood", "posterior_predictive"):
        if getattr(wanted, name):
            raise InputError(
                f"{name} is not known for targets with global and local variables.",
                cause="a data point's likelihood is given its local, which other data points lack",
                hint=f"to_datatree without {name}=True",
            )
