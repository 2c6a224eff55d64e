"""A PyMC model as a target."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from follmer.errors import InputError, closest, optional_module
from follmer.integrations.pymc_graph import Graph
from follmer.targets import Target
from follmer.targets.source import AbstractSource, Labels
from follmer.tools.keys import generator
from follmer.tools.modules import replaced


def from_pymc(model: Any) -> Target:
    """The posterior of a PyMC model, through its log density in JAX.

    Draws carry the names and shapes of the model's free variables, and its deterministics; PyMC's
    own transforms make the variables unconstrained, and potentials count. `to_datatree` keeps the
    model's dims and coords. It is computed in the precision that JAX is set to, whatever PyMC's.

    `target.with_data({"x": new})` is the same model with other values of `pm.Data`, or of observed
    variables, in the same shape.
    """
    pymc = optional_module("pymc", extra="pymc", purpose="from_pymc")
    if not isinstance(model, pymc.Model):
        raise InputError(
            f"model is {type(model).__name__}, not a PyMC model.",
            hint="with pymc.Model() as model: …; follmer.from_pymc(model)",
        )
    _check_free(model)
    graph = Graph(model)
    return _target(graph, graph.data)


def _target(graph: Graph, data: Mapping[str, Array]) -> Target:
    like = {name: jnp.zeros(shape) for name, shape in graph.shapes.items()}
    target = Target(_LogDensity(graph, dict(data)), like, outputs=_Outputs(graph, dict(data)))
    return replaced(target, source=_Source(graph, dict(data)))


# The graph is told apart by its identity, and the data are traced: other data compile nothing.
class _LogDensity(eqx.Module):
    graph: Graph
    data: dict[str, Array]

    def __call__(self, free: PyTree) -> Float[Array, ""]:
        (value,) = self.graph.density(free, self.data)
        return jnp.asarray(value, jnp.result_type(*free.values()))


class _Outputs(eqx.Module):
    graph: Graph
    data: dict[str, Array]

    def __call__(self, free: PyTree) -> dict[str, Array]:
        return dict(zip(self.graph.reported, self.graph.outputs(free, self.data), strict=True))


class _Source(AbstractSource):
    graph: Graph
    values: dict[str, Array]

    @property
    def data(self) -> dict[str, Array]:
        return self.values

    def with_data(self, data: PyTree) -> Target:
        if not isinstance(data, Mapping):
            raise InputError(
                f"data is {type(data).__name__}; of a PyMC model it is a dict of its data by name.",
                hint=f"one of: {', '.join(self.values)}",
            )
        new = dict(self.values)
        for name, value in data.items():
            if name not in new:
                raise InputError(
                    f"{name!r} is neither data of the model nor observed.",
                    hint=closest(str(name), new),
                )
            if np.shape(value) != new[name].shape:
                raise InputError(
                    f"the new {name} has shape {np.shape(value)}; the model's has "
                    f"{new[name].shape}.",
                    cause="the lengths of a PyMC model's dims are part of its graph",
                    hint="pymc.set_data({…}, model=model), then follmer.from_pymc(model) again",
                )
            new[name] = jnp.asarray(value, new[name].dtype)
        return _target(self.graph, new)

    def log_likelihoods(self, theta: PyTree) -> dict[str, Array]:
        values = self.graph.likelihoods(theta, self.values)
        return dict(zip(self.graph.observed_names, values, strict=True))

    def replicates(
        self, thetas: PyTree, outputs: PyTree, key: PRNGKeyArray
    ) -> Mapping[str, np.ndarray]:
        seed = int(generator(key, "replicates").integers(2**31))
        return self.graph.replicated(outputs, self.values, seed)

    def observed(self) -> dict[str, np.ndarray]:
        held = self.graph.holders
        return {name: np.asarray(self.values[held[name]]) for name in self.graph.observed_names}

    def constants(self) -> dict[str, np.ndarray]:
        only_observed = {self.graph.holders[name] for name in self.graph.observed_names}
        return {
            name: np.asarray(value)
            for name, value in self.values.items()
            if name not in only_observed
        }

    def labels(self) -> Labels:
        model = self.graph.model
        coords = {
            name: np.asarray(places) for name, places in model.coords.items() if places is not None
        }
        dims = {
            name: [axis if axis is not None else f"{name}_dim_{i}" for i, axis in enumerate(axes)]
            for name, axes in model.named_vars_to_dims.items()
        }
        return Labels(dims, coords)


def _check_free(model: Any) -> None:
    """Raise where a variable cannot be sampled by a diffusion, or where there is none."""
    if not model.free_RVs:
        raise InputError(
            "the model has no free variables, so there is nothing to sample.",
            cause="every variable is observed or deterministic",
        )
    discrete = [one.name for one in model.free_RVs if np.dtype(one.dtype).kind in "iub"]
    if discrete:
        raise InputError(
            f"the model has discrete free variables: {', '.join(discrete)}.",
            cause="only continuous unknowns can be sampled by a diffusion; or an observation was "
            "left out (observed=)",
            hint="sum them out, e.g. with pymc.Mixture or pymc_extras.marginalize",
        )
    bare = [one.name for one in model.free_RVs if _lacks_its_transform(model, one)]
    if bare:
        raise InputError(
            f"the model has bounded variables without a transform: {', '.join(bare)}.",
            cause="default_transform=None, or remove_value_transforms",
            hint="leave the default transform in place: draws come back on the variable's own "
            "scale",
        )


def _lacks_its_transform(model: Any, variable: Any) -> bool:
    from pymc.distributions.transforms import _default_transform

    if model.rvs_to_transforms[variable] is not None:
        return False
    return _default_transform(variable.owner.op, variable) is not None
