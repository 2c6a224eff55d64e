"""Random targets of known truth, and a table of what was said of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from follmer import InputError
from follmer.bench.families import FAMILIES
from follmer.bench.verdicts import VerdictRecord, promises, run_verdicts, verdict_table

RIGHT = {
    "log_evidence_error": 0.0,
    "plain_mean_error": 0.01,
    "plain_sd_error": 0.01,
    "mean_error": 0.01,
    "sd_error": 0.01,
    "seconds": 1.0,
}


def record(number, verdict, **changes):
    return VerdictRecord(number, "gaussian", 2, verdict, **{**RIGHT, **changes})


RECORDS = [
    record(0, "trustworthy"),
    record(1, "trustworthy", plain_sd_error=0.3),
    record(2, "use the weights", plain_sd_error=0.9),
    record(3, "do not use"),
    record(4, "do not use", log_evidence_error=-5.0),
    VerdictRecord(5, "shell", 3, "failed", note="it broke"),
]


def test_promises_are_counted():
    found = promises(RECORDS)
    assert found["trusted"] == 2
    assert found["trusted_and_wrong"] == 0.5
    assert found["worst_trusted"] == pytest.approx(2.0)
    # Weighted answers are right in four cases; one of these is refused, three are usable.
    assert found["right_and_refused"] == 0.25
    assert found["right_and_usable"] == 0.5


def test_the_table_names_lies_and_failures():
    told = verdict_table(RECORDS)
    assert "| trustworthy     |       2 |           1 |              2 |" in told
    assert "it broke" in told
    # The one that was trusted and is wrong, and no other.
    lies = told.split("Worst")[1].splitlines()[4:]
    assert [line.split("|")[1].strip() for line in lines_of(lies)] == ["1"]


def lines_of(lines):
    return [line for line in lines if line.startswith("|")]


@pytest.mark.parametrize("family", FAMILIES)
def test_truths_are_true(family):
    """ln Z and means, by a fine grid over the first one- or two-dimensional target of a family."""
    seeds = range(200)
    if family == "logistic":
        # Its truth takes seconds, and its dimension is drawn first.
        seeds = [seed for seed in seeds if np.random.default_rng(seed).integers(2, 21) == 2]
    made = (FAMILIES[family](np.random.default_rng(seed)) for seed in seeds)
    known = next(one for one in made if one.target.dim <= 2)
    dim, size = known.target.dim, 400_001 if known.target.dim == 1 else 1201
    low, high = reach(known)
    axes = [np.linspace(*ends, size) for ends in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    with jax.enable_x64(True):
        x = jnp.asarray(grid)
        logs = np.asarray(jax.lax.map(known.target.log_density, x, batch_size=4096))
        draws = jax.lax.map(known.target.constrain, x, batch_size=4096)
    weights = np.exp(logs - logs.max())
    log_z = logs.max() + np.log(weights.sum() * cell)
    # The grid ends in the tails of a t, and truths by draws have an error of .002 standard
    # deviations.
    assert abs(log_z - known.log_evidence) < 0.01
    mean = weights @ np.asarray(draws).reshape(len(grid), -1) / weights.sum()
    assert np.max(np.abs(mean - known.mean) / known.sd) < 0.01


def reach(known):
    """The box of flat coordinates that holds all but a sliver of the mass."""
    dim = known.target.dim
    if known.family in {"positive", "interval", "simplex"}:
        like = jax.eval_shape(known.target.constrain, jnp.zeros(dim))
        at_mean = jnp.asarray(known.mean[: np.prod(like.shape)], like.dtype).reshape(like.shape)
        centre = np.asarray(known.target.unconstrain(at_mean), float)
        return centre - 25.0, centre + 10.0
    wide = 60.0 if known.family == "student" else 12.0
    return known.mean - wide * known.sd, known.mean + wide * known.sd


def test_a_fixed_sample_of_targets_is_judged_rightly():
    """The first target of a few families; all of them under `make verify`."""
    records = list(run_verdicts(4))
    assert [one.family for one in records] == ["gaussian", "mixture", "two_far", "student"]
    assert not [one.note for one in records if one.note]
    assert promises(records)["trusted_and_wrong"] == 0
    assert promises(records)["right_and_usable"] == 1


def test_families_can_be_named():
    records = list(run_verdicts(1, ["shell"]))
    assert [one.family for one in records] == ["shell"]
    with pytest.raises(InputError, match="spread_mixture"):
        next(run_verdicts(1, ["mixtures"]))


@pytest.mark.slow
def test_verdicts_are_calibrated():
    """What docs/benchmarks.md promises, over 200 targets."""
    found = promises(list(run_verdicts(200)))
    assert found["trusted_and_wrong"] <= 0.01
    assert found["worst_trusted"] <= 2.0
    assert found["right_and_refused"] <= 0.10
    assert found["right_and_usable"] >= 0.90
