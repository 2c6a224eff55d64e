"""Every decision of the policy, on made-up evidence."""

import dataclasses

import pytest

from follmer.plans import POLICY

CALL = 5120  # gradients in one call of the chains


@pytest.mark.parametrize(
    ("dim", "cost", "climbs"),
    [
        (2, 50.0, (64, 256, 32768)),  # cheap: all starts
        (2, 1e5, (64, 100, 500)),  # 4e9 operations to one mode, for climbs of 400 gradients
        (2, 2e6, (25, 25, 25)),  # 2e10 operations for all
        (2, 1e9, (1, 1, 1)),  # never fewer than one
        (200, 50.0, (64, 256, 32768)),  # up to max_explored
        (201, 50.0, (1, 1, 1)),  # beyond, one
    ],
)
def test_climbs(dim, cost, climbs):
    assert POLICY.num_climbs(dim, cost) == climbs


@pytest.mark.parametrize(
    ("dim", "cost", "points"),
    [
        (2, 50.0, 16384),  # cheap: the most
        (2, 1e5, 9996),  # 1e9 operations
        (200, 50.0, 3124),  # of which a product with a dense root takes most
        (2, 1e9, 0),  # too few to choose from: none are screened
    ],
)
def test_screened(dim, cost, points):
    assert POLICY.num_screened(dim, cost) == points


@pytest.mark.parametrize(
    ("dim", "cost", "calls"),
    [
        (10, 50.0, 96),  # cheap: the most
        (10, 1e5, 39),  # 2e10 operations
        (10, 1e6, 12),  # the fewest, as many gradients as NUTS takes
        (200, 3e7, 12),  # the fewest still fit into the largest budget
        (200, 4e7, 0),  # none
        (201, 6e6, 12),  # many coordinates have a smaller budget
        (201, 7e6, 0),
    ],
)
def test_chains(dim, cost, calls):
    assert POLICY.num_calls(dim, cost, CALL) == calls


@pytest.mark.parametrize(
    ("dim", "cost", "calls"),
    [
        (201, 6e6, 12),
        (201, 3e7, 12),  # where nothing else is likely to arrive, a minute as for few coordinates
        (201, 4e7, 0),
    ],
)
def test_chains_that_are_needed(dim, cost, calls):
    assert POLICY.num_calls(dim, cost, CALL, needed=True) == calls


@pytest.mark.parametrize(
    ("dim", "cost", "spread", "is_likely"),
    [
        (1600, 1.5e7, 9.0, True),  # as a Cox process
        (1600, 1.5e7, 29.0, False),  # beyond √800
        (800, 3e7, 5.0, False),  # gradients too expensive for scores: softmax, thousands of rows
        (650, 5e6, 1000.0, False),  # softmax, fewer rows
    ],
)
def test_where_a_flow_is_likely_to_arrive(dim, cost, spread, is_likely):
    assert POLICY.flow_is_likely(dim, cost, spread) == is_likely


@pytest.mark.parametrize(("cost", "moves"), [(50.0, 4), (1.2e5, 4), (4e5, 1), (1e6, 0)])
def test_moves_of_draws_that_a_flow_learns_from(cost, moves):
    assert POLICY.moves(cost) == moves


@pytest.mark.parametrize(("cost", "particles"), [(50.0, 4096), (1e5, 1666), (1e7, 512)])
def test_particles(cost, particles):
    assert POLICY.particles(cost, 2400.0) == particles


@pytest.mark.parametrize(
    ("dim", "cost", "expected"),
    [
        (5, 1e3, {"drift": "score_guided", "num_paths": 64, "num_iterations": 1000}),
        (100, 5e5, {"drift": "score_guided", "num_paths": 16, "num_iterations": 500}),
        (1600, 1e6, {"drift": "score_guided", "num_paths": 8, "num_iterations": 200}),
        (5, 4e5, {"drift": "additive", "num_paths": 24, "num_iterations": 500, "num_steps": 32}),
        # A gradient that is expensive may still be cheap for each coordinate.
        (100, 9e5, {"drift": "score_guided", "num_paths": 16}),
    ],
)
def test_flows(dim, cost, expected):
    settings = POLICY.flow_settings(dim, cost)
    assert {name: settings[name] for name in expected} == expected


def test_the_rate_falls_in_many_dimensions():
    rates = [POLICY.flow_settings(dim, 1e3)["learning_rate"] for dim in (1, 50, 200)]
    assert rates == [1e-2, 1e-2, pytest.approx(5e-3)]


def test_the_policy_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        POLICY.max_dense = 10
