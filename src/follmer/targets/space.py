"""The unconstrained, flat coordinates of a pytree of (constrained) parameters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from follmer.errors import InputError, closest
from follmer.tools.modules import ByIdentity


class Leaf(eqx.Module):
    """One array of the parameter tree and the slice of flat coordinates that makes it."""

    name: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    free_shape: tuple[int, ...] = eqx.field(static=True)
    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)
    transform: Any  # a NumPyro transform from free to constrained values; None for the real line


class Space(ByIdentity):
    """Maps flat vectors x in R^dim to parameter trees and back, Jacobian included."""

    leaves: tuple[Leaf, ...]
    dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    _treedef: Any = eqx.field(static=True)

    def __init__(self, like: PyTree, constraints: PyTree = None):
        paths, treedef = jax.tree_util.tree_flatten_with_path(like)
        self._treedef = treedef
        if not paths:
            raise InputError(
                "`like` has no leaves, so there is nothing to sample.",
                hint="an array or a (nested) dict of arrays of the parameters' shapes",
            )
        names = [leaf_name(path) for path, _ in paths]
        self.dtype = _common_dtype(names, [leaf for _, leaf in paths])
        transforms = _transforms(like, constraints)
        leaves: list[Leaf] = []
        start = 0
        for name, (_, value), transform in zip(names, paths, transforms, strict=True):
            shape = tuple(jnp.shape(value))
            free_shape = shape if transform is None else _free_shape(name, shape, transform)
            stop = start + int(np.prod(free_shape))
            leaves.append(Leaf(name, shape, free_shape, start, stop, transform))
            start = stop
        self.leaves, self.dim = tuple(leaves), start
        if self.dim == 0:
            raise InputError("`like` holds arrays without elements, so there is nothing to sample.")

    def constrain(self, x: Float[Array, " dim"]) -> PyTree:
        """The parameter tree at flat coordinates x."""
        return self.constrain_with_log_det(x)[0]

    def constrain_with_log_det(self, x: Float[Array, " dim"]) -> tuple[PyTree, Float[Array, ""]]:
        """The parameter tree at x and ln |det| of the map's Jacobian."""
        values, log_det = [], jnp.zeros((), self.dtype)
        for leaf in self.leaves:
            free = x[leaf.start : leaf.stop].reshape(leaf.free_shape)
            if leaf.transform is None:
                values.append(free)
            else:
                value = leaf.transform(free)
                terms = leaf.transform.log_abs_det_jacobian(free, value)
                # NumPyro may compute in the widest floats that are enabled.
                values.append(value.astype(self.dtype))
                log_det += jnp.sum(terms).astype(self.dtype)
        return jax.tree.unflatten(self._treedef, values), log_det

    def unconstrain(self, theta: PyTree) -> Float[Array, " dim"]:
        """Flat coordinates of a parameter tree (the inverse of `constrain`)."""
        values, treedef = jax.tree.flatten(theta)
        if treedef != self._treedef:
            raise InputError(f"the tree {treedef} differs from that of `like`, {self._treedef}.")
        flat = []
        for leaf, value in zip(self.leaves, values, strict=True):
            value = jnp.asarray(value, self.dtype)
            if value.shape != leaf.shape:
                raise InputError(
                    f"leaf {leaf.name} has shape {value.shape}; `like` says {leaf.shape}."
                )
            flat.append(jnp.ravel(value if leaf.transform is None else leaf.transform.inv(value)))
        return jnp.concatenate(flat).astype(self.dtype)

    def spread(self, what: str, prefix: PyTree) -> list[Any]:
        """One value per leaf, from a tree in which a value may stand for a whole branch."""
        names = [leaf.name for leaf in self.leaves]
        try:
            spread = jax.tree.broadcast(prefix, jax.tree.unflatten(self._treedef, names))
        except ValueError as error:
            raise InputError(
                f"{what} does not fit the tree of `like`: {error}",
                hint=f"one value for each of the leaves {', '.join(names)}, or one for all",
            ) from None
        return jax.tree.leaves(spread)

    def like(self) -> PyTree:
        """A parameter tree of zeros."""
        zeros = [jnp.zeros(leaf.shape, self.dtype) for leaf in self.leaves]
        return jax.tree.unflatten(self._treedef, zeros)

    def leaf_of(self, coordinate: int) -> Leaf:
        """The leaf that a flat coordinate belongs to."""
        return next(leaf for leaf in self.leaves if coordinate < leaf.stop)

    def coordinate_name(self, coordinate: int) -> str:
        """A flat coordinate as a user would write it: its leaf, and its place there."""
        leaf = self.leaf_of(coordinate)
        place = np.unravel_index(coordinate - leaf.start, leaf.free_shape)
        return f"{leaf.name}[{','.join(map(str, place))}]" if place else leaf.name

    def describe(self) -> list[list[Any]]:
        """A JSON-able fingerprint, kept in saved files."""
        return [[leaf.name, list(leaf.shape), _describe(leaf.transform)] for leaf in self.leaves]


def leaf_name(path: tuple[Any, ...]) -> str:
    """`a.b.0` for the leaf at ["a"]["b"][0]; `theta` for a tree that is one bare array."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "theta"


def named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """Every leaf of a tree with its name, in the order of `jax.tree.leaves`."""
    return [(leaf_name(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _common_dtype(names: list[str], values: list[Any]) -> jnp.dtype:
    dtypes = {}
    for name, value in zip(names, values, strict=True):
        try:
            dtypes[name] = jnp.result_type(value)
        except TypeError:
            raise InputError(
                f"leaf {name} of `like` is {type(value).__name__}, not an array."
            ) from None
    for name, dtype in dtypes.items():
        if not jnp.issubdtype(dtype, jnp.floating):
            raise InputError(
                f"leaf {name} of `like` has dtype {dtype}; parameters must be floating point.",
                cause="`like` was written with whole numbers, e.g. jnp.array([0, 0])",
                hint="jnp.zeros(shape), or .astype(float); discrete parameters cannot be sampled",
            )
    if len(set(dtypes.values())) > 1:
        listing = ", ".join(f"{name}: {dtype}" for name, dtype in dtypes.items())
        raise InputError(
            f"the leaves of `like` mix floating dtypes ({listing}).",
            cause="some leaves were made under another precision than others",
            hint="jax.tree.map(lambda leaf: leaf.astype('float32'), like)",
        )
    return next(iter(dtypes.values()))


def _transforms(like: PyTree, constraints: PyTree) -> list[Any]:
    """One NumPyro transform per leaf of `like`; `constraints` is a prefix of that tree."""
    if constraints is None:
        return [None] * len(jax.tree.leaves(like))
    if type(like) is dict and isinstance(constraints, dict):
        unknown = constraints.keys() - like.keys()
        if unknown:
            name = min(unknown, key=str)
            raise InputError(
                f"`constraints` names {name!r}, which is not in `like`.",
                hint=closest(str(name), map(str, like)),
            )
        return [
            transform
            for name in sorted(like)
            for transform in _transforms(like[name], constraints.get(name))
        ]
    from numpyro.distributions import biject_to
    from numpyro.distributions.constraints import Constraint

    def is_leaf(node: Any) -> bool:
        return node is None or isinstance(node, Constraint)

    try:
        spread = jax.tree.map(
            lambda constraint, part: [constraint] * len(jax.tree.leaves(part)),
            constraints,
            like,
            is_leaf=is_leaf,
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"`constraints` does not fit the tree of `like`: {error}",
            hint="a dict with the same keys (unnamed leaves are unconstrained), "
            "or one constraint for all leaves",
        ) from None
    transforms: list[Any] = []
    for constraint in jax.tree.leaves(spread, is_leaf=is_leaf):
        if constraint is None:
            transforms.append(None)
            continue
        if not isinstance(constraint, Constraint):
            raise InputError(
                f"{constraint!r} is not a NumPyro constraint.",
                hint="numpyro.distributions.constraints.positive, .simplex, .interval(0, 1), …",
            )
        try:
            transforms.append(biject_to(constraint))
        except NotImplementedError:
            raise InputError(
                f"NumPyro has no bijection onto {constraint!r}.",
                cause="the constraint is discrete or has no interior",
                hint="a constraint of continuous values",
            ) from None
    return transforms


def _free_shape(name: str, shape: tuple[int, ...], transform: Any) -> tuple[int, ...]:
    try:
        free_shape = tuple(transform.inverse_shape(shape))
        fits, why = tuple(transform.forward_shape(free_shape)) == shape, "its bounds broadcast"
    except (ValueError, TypeError, IndexError) as error:
        fits, why = False, str(error)
    if not fits:
        raise InputError(
            f"leaf {name} of shape {shape} cannot carry its constraint: {why}.",
            cause="the constraint is for vectors, matrices or bounds of another shape",
        )
    return free_shape


def _describe(transform: Any) -> Any:
    """Type and parameters of a transform, as JSON."""
    if transform is None:
        return None
    if hasattr(transform, "parts"):
        return [_describe(part) for part in transform.parts]
    parameters = [np.asarray(value).tolist() for value in jax.tree.leaves(transform)]
    return [type(transform).__name__, *parameters]
