"""A narrowed read has each record that passes the filters, and none that a bound excludes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.pipeline.offsets import OffsetRange
from tidelog.pipeline.source.filters import first_time_ms, narrow

RANGES = [OffsetRange(topic, partition, 5, 20) for topic in ("orders", "payments") for partition in (0, 1, 2)]
TIME = datetime(2026, 11, 29, 10, 0, 0, 1500, tzinfo=UTC)
COMPARISONS: dict[type[Any], Any] = {
    EqualNullSafe: lambda a, b: a == b,
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}


def spans(*filters: Filter) -> dict[str, list[tuple[int, int]]]:
    """Start and end by place."""
    return {str(each.place): [(each.start, each.end)] for each in narrow(RANGES, filters)}


def test_bounds_of_offsets_cut_every_range() -> None:
    assert set(map(tuple, spans(LessThan(("offset",), 10)).values())) == {((5, 10),)}
    assert set(map(tuple, spans(In(("offset",), (7, 9))).values())) == {((7, 10),)}
    assert spans(GreaterThan(("offset",), 19)) == {}


def test_topics_and_partitions_leave_whole_ranges_out() -> None:
    assert list(spans(EqualTo(("partition",), 1), StringStartsWith(("topic",), "ord"))) == ["orders-1"]
    assert list(spans(Not(EqualTo(("partition",), 1)), EqualTo(("topic",), "orders"))) == [
        "orders-0",
        "orders-2",
    ]
    assert list(spans(Not(StringEndsWith(("topic",), "s")))) == []


@pytest.mark.parametrize(
    "left_to_spark",
    [
        EqualTo(("value",), b"5"),
        EqualTo(("headers", "offset"), 5),
        EqualTo(("offset",), None),
        In(("partition",), (None, 7)),
        Not(EqualTo(("offset",), 5)),
        Not(LessThan(("partition",), None)),
        IsNotNull(("offset",)),
        GreaterThan(("timestamp",), TIME),
    ],
    ids=str,
)
def test_what_is_not_understood_is_left_to_spark(left_to_spark: Filter) -> None:
    assert narrow(RANGES, [left_to_spark]) == RANGES


def test_the_first_time_is_in_whole_milliseconds_not_before_it() -> None:
    assert first_time_ms([GreaterThan(("timestamp",), TIME), IsNotNull(("timestamp",))]) == (
        int(datetime(2026, 11, 29, 10, tzinfo=UTC).timestamp()) * 1000 + 2
    )
    assert first_time_ms([LessThan(("timestamp",), TIME)]) is None
    before = datetime(1969, 12, 31, tzinfo=UTC)
    assert first_time_ms([GreaterThan(("timestamp",), before)]) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["offset", "partition"]),
            st.sampled_from(list(COMPARISONS)),
            st.integers(-1, 25),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_no_record_that_passes_is_left_out(drawn: list[tuple[str, Any, int, bool]]) -> None:
    filters: list[Filter] = []
    for column, kind, value, is_negated in drawn:
        one = kind((column,), (value, value + 1) if kind is In else value)
        filters.append(Not(one) if is_negated else one)

    def let_through(place: OffsetRange, offset: int) -> bool:
        values = {"offset": offset, "partition": place.partition}
        return all(
            COMPARISONS[kind](values[column], (value, value + 1) if kind is In else value) is not is_negated
            for column, kind, value, is_negated in drawn
        )

    read = {
        (each.place, offset) for each in narrow(RANGES, filters) for offset in range(each.start, each.end)
    }
    passing = {
        (each.place, offset)
        for each in RANGES
        for offset in range(each.start, each.end)
        if let_through(each, offset)
    }
    assert passing <= read
