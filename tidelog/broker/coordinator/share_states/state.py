"""The state of one share partition as it is stored: start offset, and the states of records after it.

Owns what an update does to it. Invariants: batches are ascending, do not overlap, and neighbours differ; none
lies before the start offset; a later update of a record replaces an earlier one.

Pure. Source: KIP-932, Kafka's ShareGroupOffset and PersisterStateBatchCombiner.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

UNINITIALIZED = -1
"""Of a start offset: no consumer has begun. Of a leader epoch: none was told."""
UNCHANGED = -1
"""Of a start offset in an update."""


class SharePartitionKey(NamedTuple):
    """A partition as one group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int


@lru_cache(maxsize=10_000)
def coordinator_key(key: SharePartitionKey) -> str:
    """As FindCoordinator names it. Its hash decides about the partition of `__share_group_state`."""
    topic_id = urlsafe_b64encode(key.topic_id.bytes).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


def is_coordinator_key(text: str) -> bool:
    """Whether this names a share partition, as `coordinator_key` writes it."""
    group_id, _, rest = text.rpartition(":")[0].rpartition(":")
    partition = text.rpartition(":")[2]
    try:
        is_id = len(urlsafe_b64decode(rest + "==")) == 16
    except ValueError:
        is_id = False
    return bool(group_id) and is_id and partition.isdecimal()


class StateBatch(NamedTuple):
    """Records of one state; `last` is inclusive."""

    first: int
    last: int
    state: int
    delivery_count: int


class ShareState(NamedTuple):
    """`complete_count`: how many records from the start offset on are done; -1: not known."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: Sequence[StateBatch] = ()

    def updated(
        self, leader_epoch: int, start_offset: int, complete_count: int, batches: Iterable[StateBatch]
    ) -> ShareState:
        start_offset = max(self.start_offset, start_offset)
        return self._replace(
            leader_epoch=max(self.leader_epoch, leader_epoch),
            start_offset=start_offset,
            complete_count=complete_count,
            batches=combined(self.batches, batches, start_offset),
        )


def combined(
    present: Iterable[StateBatch], later: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both together from `start_offset` on, where `later` holds for the records of both."""
    kept = list(present)
    for batch in later:
        low = bisect_left(kept, batch.first, key=lambda each: each.last)
        high = low
        while high < len(kept) and kept[high].first <= batch.last:
            high += 1
        parts = [batch]
        if low < high:
            if kept[low].first < batch.first:
                parts.insert(0, kept[low]._replace(last=batch.first - 1))
            if kept[high - 1].last > batch.last:
                parts.append(kept[high - 1]._replace(first=batch.last + 1))
        kept[low:high] = parts
    joined: list[StateBatch] = []
    for batch in kept:
        if batch.last < start_offset:
            continue
        if batch.first < start_offset:
            batch = batch._replace(first=start_offset)
        if joined and joined[-1].last + 1 == batch.first and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return tuple(joined)
