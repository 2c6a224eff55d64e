"""A NumPyro model as a target."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from follmer.errors import InputError, closest
from follmer.integrations.numpyro_call import (
    Call,
    LogDensity,
    LogPrior,
    Outputs,
    RowLogLikelihood,
    bound,
    is_traceable,
    on_device,
)
from follmer.integrations.numpyro_sites import (
    Site,
    bijection,
    is_observation,
    latent_sites,
    subsampled_plate,
    traced,
    was_observation,
)
from follmer.targets import Target
from follmer.targets.source import AbstractSource, Labels
from follmer.tools.keys import KeyRows, as_keys, key_rows
from follmer.tools.modules import replaced
from follmer.tools.programs import compiled


def from_numpyro(model: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Target:
    """The posterior of a NumPyro model, called with the arguments that follow it.

    Draws carry the names and supports of the model's latent sites, and its deterministic sites.
    `log_evidence` is that of the model; improper priors and factors leave it a constant off.

    The arguments are the target's data: `target.with_data({"y": new})` is the same model with
    another argument `y`. A plate with `subsample_size` makes its rows mini-batches: the target is
    that of all rows, and `fit(target, batch_size=…)` trains on some at a time, scaled rightly.

    Targets of one model on data of the same shapes share their compiled programs, unless the model
    does with its arguments what JAX cannot trace (NumPy, Python's if or int() on arrays): then each
    target is compiled anew.
    """
    if not callable(model):
        raise InputError(
            f"model is {type(model).__name__}, not a function with NumPyro statements.",
            hint="follmer.from_numpyro(model, *the model's arguments)",
        )
    call, free, is_held = _called(model, args, kwargs)
    source = _Source(call, _Given(model, args, kwargs) if is_held else None)
    if call.plate is None:
        target = Target(LogDensity(call), free, outputs=Outputs(call))
    else:
        target = Target(
            like=free,
            log_prior=LogPrior(call),
            log_likelihood=RowLogLikelihood(call),
            data=jnp.arange(call.size),
            outputs=Outputs(call),
        )
    return replaced(target, source=source)


def _called(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Call, PyTree, bool]:
    """The call, the shapes of its free values, and whether its arguments are constants."""
    converted = on_device(args, kwargs)
    if converted is not None:
        try:
            call, free = _shaped(model, *converted)
        except InputError:
            raise
        # Arguments as they were given may do; else the error shows again.
        except Exception:
            pass
        else:
            if is_traceable(call, free):
                return call, free, False
    call, free = _shaped(model, args, kwargs)
    return bound(call), free, True


def _shaped(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Call, PyTree]:
    """The call with its subsampled plate, and the shapes of its free values."""
    plates: list[tuple[str, int] | None] = []

    def like() -> PyTree:
        trace = traced(model, args, kwargs)
        latent = latent_sites(trace)
        plates.append(subsampled_plate(trace))
        return {
            name: jnp.zeros(bijection(site).inverse_shape(jnp.shape(site["value"])))
            for name, site in latent.items()
        }

    # Only shapes are asked for, so nothing is computed.
    free = jax.eval_shape(like)
    plate, size = plates[0] or (None, 0)
    return Call(model, args, kwargs, plate, size), free


class _Given:
    """Arguments that JAX cannot hold, told apart by who they are."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.model, self.args, self.kwargs = model, args, kwargs


class _Source(AbstractSource):
    """The model, its arguments by name, its observations and its plates."""

    call: Call
    given: _Given | None  # where the call holds its arguments as constants

    @property
    def data(self) -> dict[str, Any]:
        given = self._given
        return {**dict(zip(self._names(), given.args, strict=True)), **given.kwargs}

    def with_data(self, data: PyTree) -> Target:
        given = self._given
        names, kwargs = self._names(), dict(given.kwargs)
        if not isinstance(data, Mapping):
            raise InputError(
                f"data is {type(data).__name__}; of a NumPyro model it is a dict of arguments.",
                hint=f"target.with_data({{{', '.join(f'{name!r}: …' for name in self.data)}}})",
            )
        args = list(given.args)
        for name, value in data.items():
            if name in names:
                args[names.index(name)] = value
            elif name in kwargs:
                kwargs[name] = value
            else:
                raise InputError(
                    f"{name!r} is not an argument that the model was called with.",
                    hint=closest(str(name), self.data),
                )
        return from_numpyro(given.model, *args, **kwargs)

    def log_likelihoods(self, theta: PyTree) -> dict[str, Array]:
        return self.call.log_likelihoods(theta)

    def replicates(
        self, thetas: PyTree, outputs: PyTree, key: PRNGKeyArray
    ) -> Mapping[str, Array | np.ndarray]:
        count = len(jax.tree.leaves(thetas)[0])
        return _replicated(self.call, thetas, key_rows(key, count))

    def observed(self) -> dict[str, np.ndarray]:
        return {
            name: np.asarray(site["value"])
            for name, site in self._sites().items()
            if is_observation(site)
        }

    def constants(self) -> dict[str, np.ndarray]:
        observed = self.observed()
        arrays = {
            name: np.asarray(value)
            for name, value in self.data.items()
            if isinstance(value, jax.Array | np.ndarray)
        }
        return {
            name: value
            for name, value in arrays.items()
            if name not in observed and not any(np.array_equal(value, y) for y in observed.values())
        }

    def labels(self) -> Labels:
        sites = self._sites()
        sizes = {
            name: int(site["args"][0])
            for name, site in sites.items()
            if site["type"] == "plate" and name not in ("chain", "draw")
        }
        dims = {
            name: found
            for name, site in sites.items()
            if site["type"] in ("sample", "deterministic")
            and (found := _axis_names(name, site, sizes))
        }
        used = {axis for names in dims.values() for axis in names}
        return Labels(dims, {name: np.arange(size) for name, size in sizes.items() if name in used})

    @property
    def _given(self) -> "_Given":
        call = self.call
        return self.given or _Given(call.model, call.args, call.kwargs)

    def _names(self) -> list[str]:
        """The names of the arguments that were given by their places."""
        given = self._given
        try:
            parameters = list(inspect.signature(given.model).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [one.name for one in parameters if one.kind in plain][: len(given.args)]
        return names + [f"args.{i}" for i in range(len(names), len(given.args))]

    def _sites(self) -> dict[str, Site]:
        """Every site, on all rows."""
        return traced(self.call.at(), self.call.args, self.call.kwargs)


@compiled
def _replicated(call: Call, thetas: PyTree, keys: KeyRows) -> dict[str, Array]:
    """Observations drawn anew, given each draw's free values."""

    def one(draw: tuple[PyTree, PRNGKeyArray]) -> dict[str, Array]:
        trace = call.traced(draw[0], key=draw[1])
        return {name: site["value"] for name, site in trace.items() if was_observation(site)}

    return jax.lax.map(one, (thetas, as_keys(keys)))


def _axis_names(name: str, site: Site, sizes: Mapping[str, int]) -> list[str]:
    """The plates along a site's axes, up to the last that is known."""
    shape = np.shape(site["value"])
    batch = len(shape) - (site["fn"].event_dim if site["type"] == "sample" else 0)
    names = [f"{name}_dim_{i}" for i in range(batch)]
    last = 0
    for frame in site["cond_indep_stack"]:
        axis = batch + frame.dim
        if axis >= 0 and shape[axis] == sizes.get(frame.name):
            names[axis] = frame.name
            last = max(last, axis + 1)
    return names[:last]
