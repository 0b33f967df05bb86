"""Positions become exactly the ranges that were asked for, or a reason why not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    OptionError,
    Place,
    group_ranges,
    plan_ranges,
    split_ranges,
)

BOUNDS = {Place("a", 0): (10, 20), Place("a", 1): (0, 0), Place("b", 0): (5, 6)}


def test_ranges_cover_the_logs_and_leave_empty_ones_out() -> None:
    ranges = plan_ranges(EARLIEST, LATEST, BOUNDS)
    assert ranges == [OffsetRange("a", 0, 10, 20), OffsetRange("b", 0, 5, 6)]


def test_offsets_and_words_mix() -> None:
    starting = {Place("a", 0): 12, Place("a", 1): EARLIEST, Place("b", 0): 6}
    ending = {Place("a", 0): 15, Place("a", 1): LATEST, Place("b", 0): LATEST}
    assert plan_ranges(starting, ending, BOUNDS) == [OffsetRange("a", 0, 12, 15)]


@pytest.mark.parametrize(
    ("starting", "ending", "reason"),
    [
        ({Place("a", 0): 12}, LATEST, "missing a-1, b-0, unknown none"),
        ({**dict.fromkeys(BOUNDS, EARLIEST), Place("c", 0): 1}, LATEST, "missing none, unknown c-0"),
        ({**dict.fromkeys(BOUNDS, EARLIEST), Place("a", 0): 9}, LATEST, "offset 9 is gone"),
        (EARLIEST, {**dict.fromkeys(BOUNDS, LATEST), Place("a", 0): 21}, "offset 21 is not written yet"),
        (
            {**dict.fromkeys(BOUNDS, EARLIEST), Place("a", 0): 15},
            {**dict.fromkeys(BOUNDS, LATEST), Place("a", 0): 12},
            "after its end 12",
        ),
    ],
)
def test_positions_outside_the_log_are_refused(
    starting: int | dict[Place, int], ending: int | dict[Place, int], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        plan_ranges(starting, ending, BOUNDS)


SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)


@given(SIZES, st.none() | st.integers(1, 40))
def test_pieces_cover_each_range_once_in_order(sizes: list[int], min_partitions: int | None) -> None:
    ranges = [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]
    pieces = split_ranges(ranges, min_partitions)
    assert all(piece.size > 0 for piece in pieces)
    for each in ranges:
        own = [piece for piece in pieces if piece.partition == each.partition]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert all(left.end == right.start for left, right in pairwise(own))
        assert max(piece.size for piece in own) - min(piece.size for piece in own) <= 1


def test_the_largest_range_is_cut_into_most_pieces() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], 10)
    assert [piece.partition for piece in pieces] == [0] * 9 + [1]


def test_fewer_partitions_than_ranges_are_not_merged() -> None:
    ranges = [OffsetRange("t", number, 0, 5) for number in range(4)]
    assert split_ranges(ranges, 2) == ranges


@given(
    sizes=st.lists(st.integers(1, 50), max_size=30),
    most_records=st.integers(1, 100),
    at_least=st.none() | st.integers(1, 40),
)
def test_groups_hold_each_range_once_in_order(
    sizes: list[int], most_records: int, at_least: int | None
) -> None:
    ranges = [OffsetRange("t", number, 5, 5 + size) for number, size in enumerate(sizes)]
    groups = group_ranges(ranges, most_records, at_least)
    assert [each for group in groups for each in group] == ranges
    assert all(len(group) == 1 or sum(each.size for each in group) <= most_records for group in groups)
    assert len(groups) >= min(at_least or 1, len(ranges))


def test_neighbours_that_fit_are_grouped() -> None:
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate([10, 20, 100, 30])]
    assert [len(group) for group in group_ranges(ranges, 60)] == [2, 1, 1]
    assert [len(group) for group in group_ranges(ranges, 1000)] == [4]
    assert [len(group) for group in group_ranges(ranges, 1000, 3)] == [2, 1, 1]
    assert [len(group) for group in group_ranges(ranges, 1000, 4)] == [1, 1, 1, 1]
    assert [len(group) for group in group_ranges(ranges, 1000, most_ranges=3)] == [3, 1]
    assert [len(group) for group in group_ranges(ranges, 1000, most_ranges=1)] == [1, 1, 1, 1]


def test_no_piece_has_more_records_than_allowed() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 0, 901), OffsetRange("t", 1, 5, 100)], 2, 300)
    assert [each.size for each in pieces if each.partition == 0] == [225, 225, 225, 226]
    assert [(each.start, each.end) for each in pieces if each.partition == 1] == [(5, 100)]
