"""Random keys by name: apart, reproducible, and never those that a split gives."""

import ast
import itertools
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import follmer
from follmer.tools.keys import as_keys, generator, key_rows, named_key, named_keys, normals

CONSUMERS = {"named_key", "named_keys", "generator", "normals"}


def literals(node):
    """The names in an argument; for "site {i}" those of the first hundred."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for i in range(100):
            parts = [p.value if isinstance(p, ast.Constant) else str(i) for p in node.values]
            yield "".join(parts)


def names_in_use():
    """Every name by which the library asks for a key."""
    found = set()
    for file in Path(follmer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            called = getattr(node, "func", None)
            if getattr(called, "id", None) in CONSUMERS:
                found |= {name for argument in node.args for name in literals(argument)}
    return sorted(found)


IN_USE = names_in_use()
NAMES = sorted({*IN_USE, *map("".join, itertools.product("abcdefg", repeat=4))})


def words(keys):
    """The numbers of keys, as hashable rows."""
    data = np.asarray(jax.random.key_data(keys))
    return {tuple(row) for row in data.reshape(-1, data.shape[-1]).tolist()}


def test_the_names_in_use_are_found():
    assert {"drift", "paths", "memory", "statistics", "draws", "check", "site 3"} <= set(IN_USE)


def test_keys_of_different_names_differ(key):
    found = [words(named_key(key, name)) for name in NAMES[:300]]
    assert len(set.union(*found)) == 300
    assert words(key).isdisjoint(set.union(*found))


def test_no_two_names_share_a_number():
    assert len({zlib.crc32(name.encode()) for name in NAMES}) == len(NAMES)


def test_a_name_gives_the_same_key_every_time(key):
    assert words(named_key(key, "paths")) == words(named_key(jax.random.key(0), "paths"))
    assert words(named_key(key, "paths")) != words(named_key(jax.random.key(1), "paths"))


def test_a_name_gives_the_same_key_in_every_process(key):
    """Python's own hash of a string would differ from process to process."""
    number = zlib.crc32(b"paths")
    assert number == 2344257041
    assert words(named_key(key, "paths")) == words(jax.random.fold_in(key, np.uint32(number)))


def test_named_keys_are_one_for_each_name(key):
    one, two = named_keys(key, "paths", "memory")
    assert words(one) == words(named_key(key, "paths"))
    assert words(two) == words(named_key(key, "memory"))
    assert named_keys(key) == ()


def test_names_work_under_jit_and_vmap(key):
    assert words(jax.jit(lambda key: named_key(key, "paths"))(key)) == words(
        named_key(key, "paths")
    )
    keys = jax.random.split(key, 5)
    together = jax.vmap(lambda key: named_key(key, "paths"))(keys)
    assert words(together) == set.union(*(words(named_key(one, "paths")) for one in keys))


def test_a_key_that_is_folded_and_split_gives_the_same_key_twice(key):
    """Why there are names at all."""
    folded = jax.random.fold_in(key, 3)
    assert words(folded) <= words(jax.random.split(key, 5))


def test_a_name_never_collides_with_rows_of_a_split(key):
    rows = words(jax.random.split(key, 100_000))
    named = jax.vmap(lambda number: jax.random.fold_in(key, number))(
        jnp.asarray([zlib.crc32(name.encode()) for name in NAMES], jnp.uint32)
    )
    assert words(named).isdisjoint(rows)
    # Beyond any number of rows that is ever split off.
    assert min(zlib.crc32(name.encode()) for name in IN_USE) > 2**20


def test_rows_are_reproducible_keys_apart_from_each_other_and_from_names(key):
    rows = key_rows(key, 1000)
    np.testing.assert_array_equal(rows, key_rows(key, 1000))
    found = words(as_keys(rows))
    assert len(found) == 1000
    assert found.isdisjoint(words(as_keys(key_rows(jax.random.key(1), 1000))))
    named = set.union(*(words(named_key(key, name)) for name in IN_USE[:50]))
    assert found.isdisjoint(named)
    assert found.isdisjoint(words(jax.random.split(key, 1000)))


def test_rows_are_keys_to_draw_from(key):
    keys = as_keys(key_rows(key, 4000))
    assert keys.dtype == key.dtype
    draws = jax.vmap(jax.random.normal)(keys)
    # Four standard errors of a mean and of a variance.
    assert abs(draws.mean()) < 4 / np.sqrt(4000)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / 4000)


def test_generators_are_reproducible_and_differ_by_name_and_key(key):
    def first(key, name):
        return tuple(generator(key, name).integers(2**32, size=4).tolist())

    assert first(key, "rows") == first(jax.random.key(0), "rows")
    found = [first(jax.random.key(seed), name) for seed in range(5) for name in IN_USE[:60]]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_generators_take_keys_of_any_kind(impl):
    one, two = (generator(jax.random.key(seed, impl=impl), "rows").random() for seed in (0, 1))
    assert one != two


def test_normals_are_standard_and_of_the_wanted_shape(key):
    draws = normals(key, "check", (2000, 3), np.float32)
    assert (draws.shape, draws.dtype) == ((2000, 3), np.float32)
    np.testing.assert_array_equal(draws, normals(key, "check", (2000, 3), np.float32))
    assert not np.any(draws == normals(key, "signs", (2000, 3), np.float32))
    np.testing.assert_allclose(draws.mean(0), 0, atol=4 / np.sqrt(2000))
    np.testing.assert_allclose(draws.var(0), 1, atol=4 * np.sqrt(2 / 2000))
