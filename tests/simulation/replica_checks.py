"""What replicas of one partition promise, checked at each of them while they run, and at the end.

Owns what was seen committed in all lives: each batch, and up to where. Rules: what is committed at an offset
is the same batch at every replica, for ever; whoever is in sync or eligible to lead has all that was ever
committed; at the end all replicas have the same batches, and know the same of producers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from tests.simulation.checked_store import StoreFacts
from tests.simulation.virtual_broker import VirtualBroker
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.records import iter_batches

_AT_ONCE = 1 << 20


class _Partition:
    """What was seen of a partition at all its replicas."""

    def __init__(self, topic_id: UUID, index: int) -> None:
        self.topic_id = topic_id
        self.index = index
        self.committed = 0
        """Up to where a leader ever called it committed."""
        self.batches: dict[int, bytes] = {}
        """By base offset, those that were committed."""


class _Looked:
    """How far one replica was looked at."""

    def __init__(self, partition: _Partition) -> None:
        self.partition = partition
        self.end = 0


class ReplicaChecks:
    """Of all brokers and all their lives."""

    def __init__(self, facts: StoreFacts, find: Callable[[str], None]) -> None:
        self._facts = facts
        self._find = find
        self._partitions: dict[tuple[UUID, int], _Partition] = {}
        self._looked: dict[Replica, _Looked] = {}

    def look(self, brokers: Sequence[VirtualBroker]) -> None:
        """Check all replicas as they are now."""
        running = [
            (broker, replica, self._looked.get(replica) or self._begin(replica))
            for broker in brokers
            if broker.services is not None
            for replica in broker.services.replicas.values()
            if replica.is_running
        ]
        for broker, replica, looked in running:
            if replica.progress.committed.offset > looked.end:
                self._look_at(broker, replica, looked)
        for broker, replica, looked in running:
            if replica.log.end_offset < looked.partition.committed:
                self._check_member(broker, replica, looked.partition)

    def _begin(self, replica: Replica) -> _Looked:
        looked = self._looked[replica] = _Looked(self._partition(replica.topic_id, replica.partition))
        return looked

    def _look_at(self, broker: VirtualBroker, replica: Replica, looked: _Looked) -> None:
        committed = replica.progress.committed.offset
        begin = max(looked.end, replica.log.start_offset)
        if committed <= begin:
            return
        where = f"{replica.topic}-{replica.partition}"
        if committed > replica.log.end_offset:
            self._find(f"broker {broker.node_id} calls committed what it lacks of {where}")
            return
        looked.end = committed
        partition = looked.partition
        partition.committed = max(partition.committed, committed)
        batches = _batches(replica, begin, committed)
        self.committed(replica.topic_id, replica.partition, batches, f"broker {broker.node_id}, {where}")

    def committed(self, topic_id: UUID, index: int, batches: Iterable[tuple[int, bytes]], where: str) -> None:
        """These batches, by their offsets, were committed, as `where` has them."""
        partition = self._partition(topic_id, index)
        for offset, batch in batches:
            if partition.batches.setdefault(offset, batch) != batch:
                self._find(f"{where} has another batch at offset {offset} than was committed there")

    def _partition(self, topic_id: UUID, index: int) -> _Partition:
        return self._partitions.setdefault((topic_id, index), _Partition(topic_id, index))

    def _check_member(self, broker: VirtualBroker, replica: Replica, partition: _Partition) -> None:
        """A replica that lacks what was committed is neither in sync nor eligible to lead."""
        topic = self._facts.catalog.topic_by_id(partition.topic_id)
        if topic is None or not topic.has_partition(partition.index):
            return
        assigned = topic.partitions[partition.index]
        if broker.node_id in self._facts.lost_disks or broker.node_id not in (*assigned.isr, *assigned.elr):
            return
        where = f"{topic.name}-{partition.index}"
        self._find(
            f"broker {broker.node_id} has {where} up to {replica.log.end_offset}, and {partition.committed}"
            f" was committed: {assigned}"
        )

    def _assigned(self) -> Iterator[tuple[str, int, PartitionAssignment]]:
        for topic in self._facts.catalog.topics():
            for index, assigned in enumerate(topic.partitions):
                yield topic.name, index, assigned

    def difference(self, brokers: Sequence[VirtualBroker]) -> str:
        """In what replicas that are all live differ, or what is missing; empty if they are equal."""
        for name, index, assigned in self._assigned():
            where = f"{name}-{index}"
            if set(assigned.isr) != set(assigned.replicas):
                return f"{where}: not all are in sync: {assigned}"
            replicas: list[Replica] = []
            for broker in brokers:
                if broker.node_id not in assigned.replicas:
                    continue
                replica = None if broker.services is None else broker.services.replicas.get((name, index))
                if replica is None or not replica.is_running:
                    return f"{where}: broker {broker.node_id} has no replica that runs"
                replicas.append(replica)
            found = [_state(replica, _compared_from(replica, replicas)) for replica in replicas]
            for what, values in zip(("ends", "batches", "producers"), zip(*found, strict=True), strict=True):
                if any(value != values[0] for value in values):
                    return f"{where}: {what} differ: {str(values)[:600]}"
        return ""


def _compared_from(replica: Replica, replicas: Sequence[Replica]) -> int:
    """Each deletes on its own what is in remote storage."""
    log = replica.log
    is_tiered = log.config.remote_storage_enable
    return max(each.log.start_offset for each in replicas) if is_tiered else log.start_offset


def _state(replica: Replica, start_offset: int) -> tuple[Any, ...]:
    log = replica.log
    batches = dict(_batches(replica, start_offset, log.end_offset))
    # Where records have left the disk, older batches than the last cannot be found again after a truncation.
    first = -1 if log.config.remote_storage_enable else 0
    producers = sorted(
        entry._replace(last_append_ms=0, batches=entry.batches[first:]) for entry in log.producers.entries()
    )
    return (log.end_offset, replica.progress.committed.offset), batches, producers


def _batches(replica: Replica, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    while begin < end:
        found = replica.log.read(Read(begin, _AT_ONCE, end))
        if not found.records:
            return
        data = memoryview(b"".join(found.records))  # type: ignore[arg-type]
        for position, header in iter_batches(data):
            yield header.base_offset, bytes(data[position : position + header.size_bytes])
        begin = found.next_offset
