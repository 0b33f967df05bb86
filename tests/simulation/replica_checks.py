"""What replicas of one partition promise, checked at each of them while they run, and at the end.

Owns what was seen committed in all lives: each batch, and up to where. Rules: what is committed at an offset
is the same batch at every replica, for ever; whoever is in sync or eligible to lead has all that was ever
committed; at the end all replicas have the same batches, and know the same of producers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from tests.simulation.checked_store import StoreFacts
from tests.simulation.virtual_broker import VirtualBroker
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.records import iter_batches

_Place = tuple[UUID, int]
_AT_ONCE = 1 << 20


class ReplicaChecks:
    """Of all brokers and all their lives."""

    def __init__(self, facts: StoreFacts, find: Callable[[str], None]) -> None:
        self._facts = facts
        self._find = find
        self._committed: dict[_Place, int] = {}
        """Up to where a leader ever called it committed."""
        self._batches: dict[_Place, dict[int, bytes]] = {}
        """By base offset, those that were committed."""
        self._looked_at: WeakKeyDictionary[Replica, int] = WeakKeyDictionary()

    def look(self, brokers: Sequence[VirtualBroker]) -> None:
        """Check all replicas as they are now."""
        for broker in brokers:
            if broker.services is not None:
                for (_, index), replica in broker.services.replicas.items():
                    if replica.is_running:
                        self._look_at(broker, (replica.topic_id, index), replica)
        for name, index, assigned, topic_id in self._partitions():
            for broker in brokers:
                if broker.node_id in (*assigned.isr, *assigned.elr):
                    self._check_member(broker, name, (topic_id, index), assigned)

    def _partitions(self) -> Iterator[tuple[str, int, PartitionAssignment, UUID]]:
        for topic in self._facts.catalog.topics():
            for index, assigned in enumerate(topic.partitions):
                yield topic.name, index, assigned, topic.topic_id

    def _look_at(self, broker: VirtualBroker, place: _Place, replica: Replica) -> None:
        committed = replica.progress.committed.offset
        begin = max(self._looked_at.get(replica, 0), replica.log.start_offset)
        if committed <= begin:
            return
        if committed > replica.log.end_offset:
            self._find(f"broker {broker.node_id} calls committed what it lacks of {replica.topic}-{place[1]}")
            return
        self._looked_at[replica] = committed
        self._committed[place] = max(self._committed.get(place, 0), committed)
        known = self._batches.setdefault(place, {})
        for offset, batch in _batches(replica, begin, committed):
            if known.setdefault(offset, batch) != batch:
                self._find(
                    f"broker {broker.node_id} has another batch at offset {offset} of"
                    f" {replica.topic}-{replica.partition} than was committed there"
                )

    def _check_member(
        self, broker: VirtualBroker, name: str, place: _Place, assigned: PartitionAssignment
    ) -> None:
        if broker.services is None or broker.node_id in self._facts.lost_disks:
            return
        replica = broker.services.replicas.get((name, place[1]))
        committed = self._committed.get(place, 0)
        if replica is None or not replica.is_running or replica.topic_id != place[0]:
            return
        if (end_offset := replica.log.end_offset) < committed:
            self._find(
                f"broker {broker.node_id} has {name}-{place[1]} up to {end_offset}, and {committed} was"
                f" committed: {assigned}"
            )

    def difference(self, brokers: Sequence[VirtualBroker]) -> str:
        """In what replicas that are all live differ, or what is missing; empty if they are equal."""
        for name, index, assigned, _ in self._partitions():
            where = f"{name}-{index}"
            if set(assigned.isr) != set(assigned.replicas):
                return f"{where}: not all are in sync: {assigned}"
            found: list[tuple[Any, ...]] = []
            for broker in brokers:
                if broker.node_id not in assigned.replicas:
                    continue
                replica = None if broker.services is None else broker.services.replicas.get((name, index))
                if replica is None or not replica.is_running:
                    return f"{where}: broker {broker.node_id} has no replica that runs"
                found.append(_state(replica))
            for what, values in zip(("ends", "batches", "producers"), zip(*found, strict=True), strict=True):
                if any(value != values[0] for value in values):
                    return f"{where}: {what} differ: {str(values)[:600]}"
        return ""


def _state(replica: Replica) -> tuple[Any, ...]:
    log = replica.log
    batches = dict(_batches(replica, log.start_offset, log.end_offset))
    producers = sorted(entry._replace(last_append_ms=0) for entry in log.producers.entries())
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
