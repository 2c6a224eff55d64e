"""Argument checks shared by every entry point."""

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from follmer.errors import InputError, closest, unknown_option

T = TypeVar("T")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def options_checked(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Turn Python's TypeError for a wrong argument list into an InputError with a hint."""
    signature = inspect.signature(function)
    named = [name for name in signature.parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        unknown = [name for name in kwargs if name not in signature.parameters]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        if unknown and not takes_any:
            raise unknown_option(unknown[0], named)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(
                f"{_called(function)} cannot be called this way: {error}.",
                hint=_HINTS.get(str(error), f"{_called(function)}{_plain(signature)}"),
            ) from None
        return function(*args, **kwargs)

    return checked


# What to write where Python misses an argument.
_HINTS = {"missing a required argument: 'key'": "key=jax.random.key(0)"}


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """The signature without self and without types, which for arrays are long."""
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    return signature.replace(
        parameters=[one.replace(annotation=one.empty) for one in parameters],
        return_annotation=signature.empty,
    )


def _called(function: Callable[..., Any]) -> str:
    """The name that a user calls: a class's for its constructor."""
    return function.__qualname__.removesuffix(".__init__")


def as_key(key: Any) -> PRNGKeyArray:
    """A single typed random key, from a typed or an old-style uint32 one."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape == ():
            return key
        raise InputError(
            f"key has shape {key.shape}; one key is wanted.",
            cause="the result of jax.random.split was passed whole",
            hint="pass one of its rows, or vmap over them",
        )
    if isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.shape[-1:] == (2,):
        return as_key(jax.random.wrap_key_data(key))
    raise InputError(
        f"key is not a JAX random key but {type(key).__name__}: {key!r:.80}.",
        cause="a seed was passed where a key is wanted",
        hint="key=jax.random.key(0)",
    )


def positive_int(name: str, value: Any) -> int:
    if _is_number(value, numbers.Integral, jnp.integer) and int(value) >= 1:
        return int(value)
    raise InputError(f"{name} must be a whole number of at least 1, not {value!r}.")


def nonnegative_int(name: str, value: Any) -> int:
    if _is_number(value, numbers.Integral, jnp.integer) and int(value) >= 0:
        return int(value)
    raise InputError(f"{name} must be a whole number of at least 0, not {value!r}.")


def positive_float(name: str, value: Any) -> float:
    if _is_number(value) and math.isfinite(float(value)) and float(value) > 0:
        return float(value)
    raise InputError(f"{name} must be a finite number above 0, not {value!r}.")


def positive_floats(name: str, tree: Any) -> None:
    """Every number of a tree of numbers and arrays is finite and above 0."""
    for leaf in jax.tree.leaves(tree):
        if np.ndim(leaf) == 0:
            positive_float(name, leaf)
        elif not np.all(np.isfinite(leaf) & (np.asarray(leaf) > 0)):
            raise InputError(f"{name} must be finite and above 0 throughout, not {leaf!r}.")


def fraction(name: str, value: Any) -> float:
    if _is_number(value) and 0 <= float(value) < 1:
        return float(value)
    raise InputError(f"{name} must be a number in [0, 1), not {value!r}.")


def named_or_own(what: str, value: Any, options: Mapping[str, T], form: str) -> T:
    """The option of that name, or the user's own function as it is."""
    if callable(value):
        return value
    if isinstance(value, str) and value in options:
        return options[value]
    raise InputError(
        f"{what}={value!r} is unknown.", hint=f"{closest(str(value), options)}; or {form}"
    )


def known_names(kind: str, names: Collection[str], options: Collection[str]) -> None:
    for name in names:
        if name not in options:
            raise InputError(f"there is no {kind} {name!r}.", hint=closest(name, options))


def _is_number(value: Any, kind: type = numbers.Real, dtype: Any = jnp.number) -> bool:
    if isinstance(value, np.ndarray | jax.Array):
        real = jnp.issubdtype(value.dtype, dtype) and not jnp.iscomplexobj(value)
        return value.shape == () and real
    return isinstance(value, kind) and not isinstance(value, bool)
