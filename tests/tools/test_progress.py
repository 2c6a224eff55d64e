import pytest

from follmer.tools.progress import Pace


def test_the_call_that_compiles_says_nothing_of_speed():
    pace = Pace()
    pace.took(1, 1000.0)
    assert pace.count == 2


@pytest.mark.parametrize(
    ("seconds", "count"), [(1e-6, 8), (0.0, 8), (0.2, 5), (1000.0, 1)], ids=str
)
def test_calls_grow_to_half_a_second_but_at_most_fourfold(seconds, count):
    pace = Pace()
    pace.took(1, 1.0)
    pace.took(2, seconds)
    assert pace.count == count
