"""What may be cleaned, and which segments become one."""

from typing import NamedTuple

import pytest

from tidelog.broker.storage.compaction.offset_map import CELL_BYTES, OffsetMap
from tidelog.broker.storage.compaction.selection import Cleanable, cleanable, groups, overdue_ms
from tidelog.broker.storage.log_config import LogConfig

NOW_MS = 1_000_000
COMPACT = LogConfig(cleanup_policy=("compact",))


class Facts(NamedTuple):
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp: int = 0


LOG = [Facts(10 * number, 10 * number + 10) for number in range(5)]


def found(first_dirty: int = 0, stable: int = 50, config: LogConfig = COMPACT) -> Cleanable:
    return cleanable(
        LOG,
        first_dirty_offset=first_dirty,
        stable_offset=stable,
        config=config,
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (found(), Cleanable(0, 40, 0, 400)),
        (found(first_dirty=20), Cleanable(20, 40, 200, 200)),
        (found(first_dirty=25), Cleanable(25, 40, 200, 200)),
        (found(first_dirty=40), Cleanable(40, 40, 400, 0)),
        (found(stable=29), Cleanable(0, 20, 0, 200)),
        (found(first_dirty=30, stable=-1), Cleanable(0, 0, 0, 0)),
    ],
)
def test_closed_segments_are_cleaned_that_are_stable(given: Cleanable, expected: Cleanable) -> None:
    assert given == expected


def test_nothing_behind_a_young_record_is_cleaned() -> None:
    young = [*LOG[:2], LOG[2]._replace(max_timestamp=NOW_MS - 9), *LOG[3:]]
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=10)
    arguments = {"first_dirty_offset": 0, "stable_offset": 50}
    assert cleanable(young, **arguments, config=config, now_ms=NOW_MS).end_offset == 20  # type: ignore[arg-type]
    assert cleanable(young, **arguments, config=config, now_ms=NOW_MS + 1).end_offset == 40  # type: ignore[arg-type]


def test_a_log_is_due_when_it_is_dirty_enough_or_overdue() -> None:
    assert Cleanable(0, 1, 100, 101).is_due(0.5)
    assert not Cleanable(0, 1, 100, 100).is_due(0.5)
    assert Cleanable(0, 1, 100, 1, overdue_ms=1).is_due(0.5)
    assert not Cleanable(0, 1, 100, 0, overdue_ms=1).is_due(0.0)


def test_the_oldest_dirty_record_decides_what_is_overdue() -> None:
    config = LogConfig(max_compaction_lag_ms=100)
    assert overdue_ms([NOW_MS - 50, NOW_MS - 130, -1], config, NOW_MS) == 30
    assert overdue_ms([NOW_MS - 100], config, NOW_MS) == 0
    assert overdue_ms([-1], config, NOW_MS) == 0


def test_groups_join_within_size_and_offsets_and_leave_some_alone() -> None:
    far = [*LOG[:3], Facts(30, 2**31 + 5), Facts(2**31 + 5, 2**31 + 9)]

    def bases(size: int, end: int, alone: int = -1) -> list[list[int]]:
        found = groups(far, end, size, lambda segment: segment.base_offset == alone)
        return [[segment.base_offset for segment in group] for group in found]

    assert bases(250, 30) == [[0, 10], [20]]
    assert bases(1000, 21) == [[0, 10, 20]]
    assert bases(1000, 20) == [[0, 10]]
    assert bases(1000, 30, alone=10) == [[0], [10], [20]]
    assert bases(50, 30) == [[0], [10], [20]]
    assert bases(1000, 2**32) == [[0, 10, 20], [30, 2**31 + 5]]


def test_the_map_takes_as_many_keys_as_it_has_memory_for_and_newer_offsets_of_those() -> None:
    offsets = OffsetMap(CELL_BYTES * 10, 1000)
    assert (offsets.cells, offsets.capacity) == (10, 7)
    keys = [b"%d" % (number % 7) for number in range(14)]
    assert offsets.put_all(keys, range(14))
    assert not offsets.put_all([b"0", None, b"seven", b"1"], range(14, 18))
    assert offsets.latest_offset == 15
    assert offsets.newest([b"0", b"0", b"1", b"other", None], [0, 14, 8, 3, 4]) == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert OffsetMap(1 << 30, 5).cells < 10
