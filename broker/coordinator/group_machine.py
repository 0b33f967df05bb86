"""All groups of one partition of `__consumer_offsets`: one machine, made of those that each own a part.

Owns which part takes which kind of record, and which partition a group belongs to.

Pure. Source: Kafka's GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.coordinator.offsets.committed_offsets import CommittedOffsets, NoMembers
from tidelog.broker.coordinator.offsets.offset_records import OFFSET_RECORDS, OffsetRecord
from tidelog.broker.coordinator.record_formats import RecordFormats

GROUP_RECORD_FORMATS = RecordFormats((OFFSET_RECORDS,))
_INT32 = 0xFFFFFFFF
_LOWEST_INT32 = 0x80000000


class GroupMachine:
    """What groups committed."""

    def __init__(self, retention_ms: int) -> None:
        """`retention_ms`: how long offsets are kept that nobody needs."""
        self.offsets = CommittedOffsets(NoMembers(), retention_ms)
        self._parts: dict[type, Callable[[Any], None]] = {OffsetRecord: self.offsets.apply}

    def apply(self, record: object) -> None:
        self._parts[type(record)](record)


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of a group, by the hash that Kafka takes: that of Java's String."""
    hashed = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        hashed = (31 * hashed + (units[position] << 8 | units[position + 1])) & _INT32
    if hashed >= _LOWEST_INT32:
        hashed = 0 if hashed == _LOWEST_INT32 else _INT32 + 1 - hashed
    return hashed % partition_count
