"""Members moved in groups: the same as all at once, with what the caller has set."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer.mcmc import groups
from follmer.mcmc.groups import batch_share, by_group


@pytest.mark.parametrize("operations", [1.0, 1e12])
@pytest.mark.parametrize("count", [1, 4, 5])
def test_groups_give_what_all_members_give(operations, count):
    members = (jnp.arange(count * 3.0).reshape(count, 3), jnp.arange(count))
    found = by_group(lambda some, name: (some[0] ** 2, some[1] + 1), members, operations)
    np.testing.assert_array_equal(found[0], members[0] ** 2)
    np.testing.assert_array_equal(found[1], members[1] + 1)


def test_groups_are_the_same_whatever_the_machine(monkeypatch):
    def names(cores):
        seen = []
        monkeypatch.setattr(groups.os, "cpu_count", lambda: cores)
        by_group(lambda some, name: (seen.append((name, len(some))), some)[1], jnp.zeros(5), 1.0)
        return sorted(seen)

    assert names(1) == names(64) == [("group 0", 2), ("group 2", 2), ("group 4", 1)]


def test_threads_have_the_precision_of_the_caller():
    with jax.enable_x64(True):
        found = by_group(lambda some, name: some + jnp.asarray(1e-12), jnp.ones(4), 1.0)
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found - 1.0, 1e-12, rtol=1e-3)


def test_what_fails_in_a_thread_is_told():
    with pytest.raises(ZeroDivisionError):
        by_group(lambda some, name: 1 / 0, jnp.zeros(4), 1.0)


def test_a_gradient_by_batches_looks_at_a_share():
    assert batch_share(None, 100) == batch_share(7, None) == 1.0
    assert batch_share(25, 100) == 0.25
