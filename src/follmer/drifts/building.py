"""From a name, a module or a function to a drift of the right size and precision."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from follmer.drifts.additive import Additive
from follmer.drifts.decoupled import Decoupled, Encoder, bind_batch
from follmer.drifts.mlp import MLP, BatchNormMLP
from follmer.drifts.resnet import ResNet
from follmer.drifts.score_guided import ScoreGuided
from follmer.drifts.time_mlp import TimeMLP
from follmer.drifts.zero import Zero
from follmer.errors import InputError, closest, unknown_option
from follmer.paths import Control, Drift
from follmer.targets import Layout
from follmer.tools.checks import positive_int

# Drifts that can be named: each is built by Class(dim, key=key, **drift_options).
DRIFTS: dict[str, Callable[..., Drift]] = {
    "time_mlp": TimeMLP,
    "score_guided": ScoreGuided,
    "additive": Additive,
    "mlp": MLP,
    "batch_norm_mlp": BatchNormMLP,
    "resnet": ResNet,
    "zero": Zero,
}
# Those that can be told more than the state: of a local, the globals and its data point.
_DECOUPLED = ("time_mlp", "mlp", "batch_norm_mlp")


def build_drift(
    drift: str | Drift, options: Mapping[str, Any], layout: Layout, dtype: Any, key: PRNGKeyArray
) -> Drift:
    """The named drift built from the key, or the user's own as it is; both in the given dtype."""
    if isinstance(drift, str):
        drift = _built(drift, options, layout, key)
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, drift
    )


def _built(name: str, options: Mapping[str, Any], layout: Layout, key: PRNGKeyArray) -> Drift:
    if layout.local_dim == 0:
        return DRIFTS[name](layout.dim, key=key, **options)
    shared_key, local_key, encoder_key = jax.random.split(key, 3)
    encoder = None
    context = layout.dim + layout.num_features
    if name == "time_mlp":
        encoder = Encoder(layout.num_features, options.get("width", 64), encoder_key)
        context = layout.dim + encoder.size
    return Decoupled(
        shared=DRIFTS[name](layout.dim, key=shared_key, **options),
        local=DRIFTS[name](layout.local_dim, context=context, key=local_key, **options),
        encoder=encoder,
        global_dim=layout.dim,
        local_dim=layout.local_dim,
        unit=layout.unit,
    )


def checked_drift(drift: Any, options: Any, layout: Layout, dtype: Any) -> dict[str, int]:
    """The checked options of a drift; raises InputError where it cannot steer the target."""
    if not isinstance(options, Mapping):
        raise InputError("drift_options must be a dict, such as {'width': 128}.")
    if isinstance(drift, str):
        options = _checked_options(drift, options)
        if layout.local_dim and drift not in _DECOUPLED:
            raise InputError(
                f"drift={drift!r} cannot steer global and local variables.",
                hint=f"{', '.join(_DECOUPLED)}; or target.joint() for one coupled drift",
            )
    elif not callable(drift):
        raise InputError(
            f"drift is {type(drift).__name__}, not a function or a name.",
            hint=f"{closest('', DRIFTS)}; or any function (t, x) -> u",
        )
    elif options:
        raise InputError("drift_options only go with a drift given by name.")
    else:
        _check_output(build_drift(drift, options, layout, dtype, jax.random.key(0)), layout, dtype)
    return dict(options)


def _checked_options(name: str, options: Mapping[str, Any]) -> dict[str, int]:
    if name not in DRIFTS:
        raise InputError(
            f"drift={name!r} is not a drift.",
            hint=f"{closest(name, DRIFTS)}; or any function (t, x) -> u",
        )
    known = set(inspect.signature(DRIFTS[name]).parameters) - {"dim", "key", "context"}
    if options and not known:
        raise InputError(f"the drift {name!r} takes no drift_options.")
    for option in options:
        if option not in known:
            raise unknown_option(option, known)
    return {option: positive_int(option, value) for option, value in options.items()}


def _check_output(drift: Drift, layout: Layout, dtype: Any) -> None:
    dim = layout.dim + layout.local_dim
    if layout.local_dim:
        # A state of one data point.
        drift = bind_batch(drift, jnp.zeros((1, layout.num_features), dtype))
    t, x = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((dim,), dtype)
    try:
        u = eqx.filter_eval_shape(eqx.nn.inference_mode(drift, True), t, x)
    except TypeError as error:
        raise InputError(
            f"the drift cannot be called with a time and a state of shape ({dim},): {error}",
            cause="it takes other arguments, or a class was passed instead of an instance",
            hint="a function (t, x) -> u, or a module with that __call__",
        ) from error
    u = u.u if isinstance(u, Control) else u
    shape = getattr(u, "shape", type(u).__name__)
    if shape != (dim,):
        raise InputError(
            f"the drift returns {shape} for a state of shape ({dim},); it must return the "
            "state's shape.",
            cause="a drift acts on one state (dim,), not on a batch, and maps R^dim to R^dim",
        )
    if u.dtype != dtype:
        raise InputError(f"the drift returns dtype {u.dtype}; the target's parameters are {dtype}.")
