"""Medians, percentiles, and ratios that are taken round by round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.statistics import median, percentile, ratios

numbers = st.lists(st.integers(-1000, 1000), min_size=1, max_size=60)


def test_a_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 3, 2]) == 2.5


@given(numbers, st.floats(0, 1))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert sum(value <= found for value in ordered) >= share * len(ordered)
    assert all(
        sum(value <= smaller for value in ordered) < share * len(ordered)
        for smaller in ordered
        if smaller < found
    )


def test_p99_of_a_hundred_leaves_one_above() -> None:
    assert percentile(list(range(1, 101)), 0.99) == 99


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([10, 200, 30], [5, 100, 60]) == [2, 2, 0.5]


def test_nothing_is_computed_from_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        median([])
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="0 to 1"):
        percentile([1], 1.5)


def test_rounds_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds cannot be compared with 1"):
        ratios([1, 2], [1])
