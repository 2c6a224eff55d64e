"""Standard normals: their law, their independence, and that they belong to their key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from follmer.tools.normals import standard_normals, threefry

SIZE = 400_001
# Standard errors: a right generator fails once in a million.
LARGEST = 5.0


@pytest.fixture(scope="module")
def draws():
    normals = jax.jit(lambda key: standard_normals(key, (SIZE,)))(jax.random.key(0))
    return np.asarray(normals, float)


def test_threefry_gives_the_published_numbers():
    """The known answers of Random123's Threefry-2x32 with 20 rounds."""
    for key, counter, answer in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        words = [jnp.asarray(word, jnp.uint32) for word in (*key, *counter)]
        assert tuple(int(word) for word in threefry(*words)) == answer


def test_the_law_is_normal(draws):
    # E x^2m = (2m − 1)!!, and odd moments vanish.
    for power, mean in [(1, 0), (2, 1), (3, 0), (4, 3), (6, 15), (8, 105)]:
        terms = draws**power
        assert abs(terms.mean() - mean) < LARGEST * terms.std() / np.sqrt(SIZE)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    counts = np.histogram(stats.norm.cdf(draws), 1000, (0, 1))[0]
    assert stats.chisquare(counts).pvalue > 1e-6


def test_the_tails_are_as_heavy_as_they_should_be(draws):
    for far in (3.0, 4.0):
        expected = 2 * SIZE * stats.norm.sf(far)
        assert abs(np.sum(np.abs(draws) > far) - expected) < LARGEST * np.sqrt(expected)


def test_pairs_of_one_block_neighbours_and_keys_are_independent(draws):
    half = (SIZE + 1) // 2
    other = np.asarray(standard_normals(jax.random.key(1), (SIZE,)), float)
    for first, second in [
        (draws[: SIZE - half], draws[half:]),
        (draws[:-1], draws[1:]),
        (draws[:-32], draws[32:]),
        (draws, other),
    ]:
        for power in (1, 2):
            correlation = np.corrcoef(first**power, second**power)[0, 1]
            assert abs(correlation) < LARGEST / np.sqrt(len(first))


def test_draws_belong_to_their_key_whatever_their_shape_and_batch():
    keys = jax.random.split(jax.random.key(3), 4)
    batched = jax.vmap(lambda key: standard_normals(key, (5, 3)))(keys)
    for key, found in zip(keys, batched, strict=True):
        alone = standard_normals(key, (15,)).reshape(5, 3)
        np.testing.assert_allclose(found, alone, rtol=1e-5)  # compiled otherwise: rounding


def test_other_generators_are_drawn_by_jax():
    key = jax.random.key(0, impl="rbg")
    np.testing.assert_array_equal(standard_normals(key, (7,)), jax.random.normal(key, (7,)))
