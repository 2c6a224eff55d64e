"""Missing values in the data: the pre-flight says in which array and in which rows."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from follmer import NonFiniteError, StructuredTarget, Target
from follmer.targets.affine import diagonal

POINTS = np.linspace(-1.0, 2.0, 12)


def spoilt(array, rows, value=np.nan):
    array = np.array(array, np.float32)
    array[rows] = value
    return array


def target(data, read=lambda batch: batch):
    return Target(
        log_prior=norm.logpdf,
        log_likelihood=lambda theta, batch: norm.logpdf(read(batch), theta),
        data=data,
        like=0.0,
    )


TABLE = spoilt(np.ones((12, 3)), ([4, 4, 9], [0, 2, 1]))


@pytest.mark.parametrize(
    ("data", "read", "message"),
    [
        (spoilt(POINTS, 3), lambda b: b, "Likely cause: `data` is not finite in row 3\n"),
        (spoilt(POINTS, [2, 7]), lambda b: b, "Likely cause: `data` is not finite in row 2, 7\n"),
        (spoilt(POINTS, 0, np.inf), lambda b: b, "`data` is not finite in row 0\n"),
        (TABLE, lambda b: b.sum(1), "`data` is not finite in row 4, 9\n"),
        (
            {"x": POINTS, "y": spoilt(POINTS, 11)},
            lambda b: b["x"] + b["y"],
            "Likely cause: y in `data` is not finite in row 11\n",
        ),
        (
            (POINTS, {"a": TABLE, "n": np.arange(12), "flag": POINTS > 0}),
            lambda b: b[0] + b[1]["a"].sum(1),
            "Likely cause: 1.a in `data` is not finite in row 4, 9\n",
        ),
        (
            {"x": spoilt(POINTS, 1), "y": spoilt(POINTS, 2)},
            lambda b: b["x"] + b["y"],
            "x in `data` is not finite in row 1; y in `data` is not finite in row 2\n",
        ),
        (
            spoilt(POINTS, np.arange(3, 12)),
            lambda b: b,
            "`data` is not finite in row 3, 4, 5, 6, 7 and 4 more\n",
        ),
    ],
    ids=["one", "two", "infinite", "table", "named", "nested", "two arrays", "many"],
)
def test_missing_values_are_named_with_their_array_and_rows(data, read, message, key):
    for one in (target(data, read), target(data, read).whitened(diagonal([0.1], [2.0], "float32"))):
        with pytest.raises(NonFiniteError, match=r"not finite at 128 of 128 starting draws") as bad:
            one.check(key=key)
        assert message in str(bad.value)
        assert "because of leaf" not in str(bad.value)


def test_missing_values_that_the_likelihood_leaves_out_are_fine(key):
    masked = target(spoilt(POINTS, [3, 5]), lambda batch: jnp.where(batch > -9, batch, 0.0))
    assert masked.check(key=key).num_draws == 128


def test_sound_data_are_not_blamed(key):
    with pytest.raises(NonFiniteError, match="outside the density's support") as bad:
        target(POINTS, lambda batch: batch / 0.0).check(key=key)
    assert "`data`" not in str(bad.value)


def structured(data, read):
    return StructuredTarget(
        log_prior_global=norm.logpdf,
        log_prior_local=norm.logpdf,
        log_likelihood=lambda theta, phi, row: norm.logpdf(read(row), theta),
        data=data,
        like_global=jnp.zeros(()),
        like_local=jnp.zeros(()),
    )


@pytest.mark.parametrize("row", [0, 5, 501, 999])
def test_a_structured_target_names_the_users_own_row_out_of_many(row, key):
    points = np.linspace(-1.0, 2.0, 1000)
    with pytest.raises(NonFiniteError, match=f"cause: `data` is not finite in row {row}\n"):
        structured(spoilt(points, row), lambda row: row).check(key=key)
    pair = {"x": points, "y": spoilt(points, row)}
    with pytest.raises(NonFiniteError, match=f"cause: y in `data` is not finite in row {row}\n"):
        structured(pair, lambda row: row["x"] + row["y"]).check(key=key)
