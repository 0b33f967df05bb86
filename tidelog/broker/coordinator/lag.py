"""The lag of groups: the rule for metrics and pages.

Invariants:
- an offset that was committed for a deleted topic is not shown;
- an offset in a topic of the broker's own is not shown: no group reads there, and programs that keep their
  state as committed offsets have no lag;
- a lag is never negative: an offset beyond the high watermark has the lag 0.

Event loop only. Source: danielqsj/kafka_exporter.
"""

from collections.abc import Iterable, Iterator, Mapping

from tidelog.broker.cluster.catalog import Catalog, Topic
from tidelog.broker.coordinator.group_machine import GroupMachine
from tidelog.broker.coordinator.offsets.committed_offsets import is_of
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset
from tidelog.broker.replicas.replica import Replica

Lag = tuple[int, CommittedOffset, int | None, int | None]
"""Of a group in a partition: its number, what is committed, the high watermark, and the records between the
two. The last two are None if this broker does not serve it. A plain tuple, because a scrape makes one for
each committed offset."""


def records_behind(committed: CommittedOffset, high_watermark: int) -> int:
    """Records between a committed offset and the high watermark."""
    return max(0, high_watermark - committed.offset)


def lags_of(
    machine: GroupMachine, group_id: str, catalog: Catalog, replicas: Mapping[tuple[str, int], Replica]
) -> Iterator[tuple[str, Iterator[Lag]]]:
    """Those of one group, by topic."""
    for name, offsets in machine.offsets.of_group(group_id):
        topic = catalog.topic(name)
        if topic is not None and not topic.is_internal:
            yield name, _lags_in(topic, offsets, replicas)


def _lags_in(
    topic: Topic, offsets: Iterable[tuple[int, CommittedOffset]], replicas: Mapping[tuple[str, int], Replica]
) -> Iterator[Lag]:
    name, topic_id = topic.name, topic.topic_id
    for index, committed in offsets:
        if is_of(committed, topic_id):
            replica = replicas.get((name, index))
            if replica is not None:
                high_watermark = replica.high_watermark
                yield index, committed, high_watermark, records_behind(committed, high_watermark)
            elif topic.has_partition(index):
                yield index, committed, None, None
