"""What the filters of a query say of places, offsets and times, so that a read leaves out what they exclude.

Owns the meaning of Spark's filters on the columns topic, partition, offset and timestamp. Pure.

Invariants: a narrowed read still has every record that passes the filters. Spark applies all of them again,
so a filter that is not understood is left to it. A log tells the first record of a time or later, but not the
last one before a time: a later record may have an earlier time.
"""

import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.pipeline.offsets import OffsetRange, Place

_TESTS: Final[Mapping[type[Filter], Any]] = {
    EqualNullSafe: operator.eq,
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    In: lambda value, values: value in values,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringContains: operator.contains,
    StringEndsWith: str.endswith,
    StringStartsWith: str.startswith,
}
_LOWER: Final = (EqualNullSafe, EqualTo, GreaterThan, GreaterThanOrEqual, In)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UPPER: Final = (EqualNullSafe, EqualTo, In, LessThan, LessThanOrEqual)


def passes(filters: Iterable[Filter], place: Place) -> bool:
    """Whether records of this place may pass."""
    columns: dict[tuple[str, ...], Any] = {("topic",): place.topic, ("partition",): place.partition}
    for each in filters:
        inner = each.child if isinstance(each, Not) else each
        test, values = _TESTS.get(type(inner)), _values(inner, (str, int))
        if test is None or not values or inner.attribute not in columns:
            continue
        if test(columns[inner.attribute], inner.value) is isinstance(each, Not):
            return False
    return True


def narrow(ranges: Iterable[OffsetRange], filters: Iterable[Filter]) -> list[OffsetRange]:
    """The parts of the ranges whose records may pass, without empty ones."""
    filters = list(filters)
    lowest, highest = _bounds(filters, "offset", int, 1)
    narrowed = (
        each._replace(
            start=each.start if lowest is None else max(each.start, lowest),
            end=each.end if highest is None else min(each.end, highest + 1),
        )
        for each in ranges
        if passes(filters, each.place)
    )
    return [each for each in narrowed if each.start < each.end]


def first_time_ms(filters: Iterable[Filter]) -> int | None:
    """The earliest time of a record that may pass, in milliseconds since 1970. None: any."""
    first: datetime | None
    first, _ = _bounds(filters, "timestamp", datetime, _MICROSECOND)
    if first is None or first.tzinfo is None or first <= _EPOCH:
        # Records without a time have the time -1.
        return None
    return -((_EPOCH - first) // timedelta(milliseconds=1))


def _bounds(filters: Iterable[Filter], column: str, kind: type, step: Any) -> tuple[Any, Any]:
    """The least and the greatest value of a column that may pass; None: no bound. Values differ by `step`."""
    lowest = highest = None
    for each in filters:
        values = _values(each, (kind,))
        if not values or each.attribute != (column,):
            continue
        if isinstance(each, _LOWER):
            least = min(values) + step if isinstance(each, GreaterThan) else min(values)
            lowest = least if lowest is None else max(lowest, least)
        if isinstance(each, _UPPER):
            most = max(values) - step if isinstance(each, LessThan) else max(values)
            highest = most if highest is None else min(highest, most)
    return lowest, highest


def _values(each: Filter, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """What the filter compares with; nothing if one of it is null, or is of another kind."""
    value: Any = getattr(each, "value", None)
    values = tuple(value) if isinstance(each, In) else (value,)
    return values if all(isinstance(one, kinds) and not isinstance(one, bool) for one in values) else ()
