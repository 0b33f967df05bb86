"""How far groups are behind: the rule for metrics and pages.

Invariants:
- an offset that was committed for a deleted topic is not shown;
- an offset in a topic of the broker's own is not shown: no group reads there, and programs that keep their
  state as committed offsets have no lag;
- a lag is never negative: an offset beyond the high watermark has the lag 0.

Event loop only. Source: danielqsj/kafka_exporter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.broker.cluster.catalog import Catalog
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.offsets.committed_offsets import is_of
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset
from tidelog.broker.replicas.replica import Replica


class PartitionLag(NamedTuple):
    """What a group committed in a partition; `high_watermark` is None where this broker does not serve it."""

    topic: str
    partition: int
    committed: CommittedOffset
    high_watermark: int | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the high watermark."""
        return None if self.high_watermark is None else max(0, self.high_watermark - self.committed.offset)


def lags_of(
    machine: GroupMachine, group_id: str, catalog: Catalog, replicas: Mapping[tuple[str, int], Replica]
) -> Iterator[PartitionLag]:
    """Those of one group, all partitions of a topic together."""
    for name, offsets in machine.offsets.of_group(group_id):
        topic = catalog.topic(name)
        if topic is None or topic.is_internal:
            continue
        for index, committed in offsets:
            if topic.has_partition(index) and is_of(committed, topic.topic_id):
                replica = replicas.get((name, index))
                high_watermark = None if replica is None else replica.high_watermark
                yield PartitionLag(name, index, committed, high_watermark)
