"""Percentiles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.statistics import percentile

numbers = st.lists(st.integers(-1000, 1000), min_size=1, max_size=60)


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


def test_nothing_is_computed_from_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="0 to 1"):
        percentile([1], 1.5)
