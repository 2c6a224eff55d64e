"""The graph of a PyMC model as functions of JAX, its data among their arguments."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from follmer.errors import InputError, in_a_line

Function = Callable[[PyTree, Mapping[str, Array]], list[Array]]


class Graph:
    """A model's log density, reported values and pointwise log likelihoods.

    Each is a function of the free values, by the variables' names, and of the data, by theirs.
    """

    def __init__(self, model: Any):
        self.model = model
        with _quiet():
            self._build()

    def _build(self) -> None:
        model = self.model
        self.names = [one.name for one in model.free_RVs]
        point = model.initial_point()
        self.shapes = {
            one.name: np.shape(point[model.rvs_to_values[one].name]) for one in model.free_RVs
        }
        self.observed_names = tuple(one.name for one in model.observed_RVs)
        # Which of the data holds an observed variable's values: its own, or a pm.Data.
        self.holders = {one.name: _holder(model, one) for one in model.observed_RVs}
        sources = _data_variables(model)
        self.data = {name: jnp.asarray(_value(one)) for name, one in sources.items()}
        wanted = [one for one in model.unobserved_value_vars if one not in set(model.value_vars)]
        # Variables without a transform are their own values.
        plain = [one for one in model.free_RVs if model.rvs_to_transforms[one] is None]
        reported = {one.name: one for one in wanted}
        reported |= {one.name: model.rvs_to_values[one] for one in plain}
        self.reported = [name for name in reported if not name.endswith("__")]
        self.density = self._function([model.logp()], sources)
        self.outputs = self._function([reported[name] for name in self.reported], sources)
        pointwise = model.logp(model.observed_RVs, sum=False) if model.observed_RVs else []
        self.likelihoods = self._function(pointwise, sources)

    def _function(self, outputs: Sequence[Any], sources: Mapping[str, Any]) -> Function:
        from pytensor.graph.replace import clone_replace

        if not outputs:
            return lambda free, data: []
        jaxified = _jax_of_pymc().get_jaxified_graph
        inputs = {name: one.type(name=f"{name}_given") for name, one in sources.items()}
        values = [self.model.rvs_to_values[one] for one in self.model.free_RVs]
        names = list(inputs)
        try:
            replaced = clone_replace(
                list(outputs), {one: inputs[name] for name, one in sources.items()}
            )
            function = jaxified([*values, *inputs.values()], replaced)
        except Exception as error:
            raise InputError(
                f"the model's graph cannot be turned into JAX ({in_a_line(error)}).",
                cause="an operation that PyTensor has no JAX version of, such as a custom Op, or "
                "pymc.Minibatch",
                hint="the same model in NumPyro: follmer.from_numpyro(model, …)",
            ) from error

        def called(free: PyTree, data: Mapping[str, Array]) -> list[Array]:
            with _quiet():
                values = [free[name] for name in self.names] + [data[name] for name in names]
                return list(function(*map(jnp.asarray, values)))

        return called

    def replicated(
        self, draws: PyTree, data: Mapping[str, Array], seed: int
    ) -> dict[str, np.ndarray]:
        """New observations given each draw of the free variables, by PyTensor on the host."""
        import pymc
        from pytensor.graph.replace import clone_replace

        model = self.model
        if not model.observed_RVs:
            return {}
        given = {one: one.type(name=f"{one.name}_given") for one in model.free_RVs}
        held = {one: one.type(name=f"{one.name}_given") for one in model.data_vars}
        outputs = clone_replace(list(model.observed_RVs), {**given, **held})
        # Compiling to C takes longer than some thousand draws do.
        with _quiet():
            function = pymc.compile(
                [*given.values(), *held.values()],
                outputs,
                random_seed=seed,
                mode="FAST_COMPILE",
                on_unused_input="ignore",
            )
        columns = [np.asarray(draws[one.name], one.dtype) for one in given]
        constants = [np.asarray(data[one.name], one.dtype) for one in held]
        rows = [function(*row, *constants) for row in zip(*columns, strict=True)]
        stacked = (np.stack(values) for values in zip(*rows, strict=True))
        return dict(zip(self.observed_names, stacked, strict=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of what does not matter here."""
    with warnings.catch_warnings():
        # The graph asks for double precision; JAX decides.
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        # What is computed by PyTensor itself is little.
        warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS")
        yield


def _data_variables(model: Any) -> dict[str, Any]:
    """The variables of a model's data by name: pm.Data, and observed constants."""
    found = {one.name: one for one in model.data_vars}
    for one in model.observed_RVs:
        name = _holder(model, one)
        if name not in found:
            found[name] = model.rvs_to_values[one]
    return {name: one for name, one in found.items() if _is_held(one)}


def _holder(model: Any, observed: Any) -> str:
    value = model.rvs_to_values[observed]
    held = [one.name for one in model.data_vars if one is value]
    return held[0] if held else observed.name


def _is_held(variable: Any) -> bool:
    return hasattr(variable, "get_value") or hasattr(variable, "data")


def _value(variable: Any) -> np.ndarray:
    shared = hasattr(variable, "get_value")
    return np.asarray(variable.get_value() if shared else variable.data)


def _jax_of_pymc() -> Any:
    """PyMC's module for JAX, without what its import does to JAX's settings.

    It switches JAX to double precision and asks for a hundred devices.
    """
    found: list[Any] = []

    def load() -> None:
        # A thread of its own sees the setting for all threads, not one of `jax.enable_x64`.
        flags = os.environ.get("XLA_FLAGS")
        double = jax.config.jax_enable_x64  # type: ignore[attr-defined]
        try:
            import pymc.sampling.jax

            found.append(pymc.sampling.jax)
        finally:
            jax.config.update("jax_enable_x64", double)
            if flags is None:
                os.environ.pop("XLA_FLAGS", None)
            else:
                os.environ["XLA_FLAGS"] = flags

    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    if not found:
        raise InputError(
            "pymc.sampling.jax cannot be imported.", hint="pip install 'follmer[pymc]'"
        )
    return found[0]
