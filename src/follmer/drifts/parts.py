"""A drift may hold others: changing every part of one kind."""

from collections.abc import Callable
from typing import Any

import jax


def change_parts(drift: Any, is_kind: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """The drift with `change` made to every part for which `is_kind`; parts of those are left."""
    return jax.tree.map(
        lambda node: change(node) if is_kind(node) else node, drift, is_leaf=is_kind
    )
