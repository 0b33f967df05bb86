"""Test changes to the producers that a partition remembers: forget one, expire it, move its sequence.

They are made in memory, between two batches, as if time had passed or more had been written; the log itself
is never changed. Invariants: a producer with an open transaction can only be forgotten, never expired or
moved; nothing here is undone, and a start after a crash rebuilds the state of the log.

After a moved sequence the broker expects `next_sequence`, and DescribeProducers returns `next_sequence - 1`
as the last one. A client that counts by itself (every plain Producer, librdkafka, aiokafka) is then answered
OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from tidelog.broker.fault_injection.rules import FaultError
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.broker.storage.producer_table import ProducerEntry
from tidelog.protocol.types import MAX_SEQUENCE

logger = structlog.get_logger(__name__)

NEAR_THE_WRAP = MAX_SEQUENCE - 9
"""The next sequence if none is given: ten records before it wraps to 0."""
PRODUCER_FAULTS = ("forget", "expire", "sequence")
_MAX_EPOCH = 2**15 - 1


class UnknownProducerError(FaultError):
    """The partition remembers no such producer."""


class ProducerFaults:
    """Changes to the producers of one broker's partitions. Every call may raise FaultError and ApiError."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def apply(self, values: Mapping[str, object]) -> dict[str, Any]:
        """One change, from JSON: `fault` is forget, expire or sequence. Returns the state before it."""
        known = {"fault", "topic", "partition", "producer_id", "next_sequence", "producer_epoch"}
        if values.keys() - known:
            raise FaultError(f"unknown field {min(values.keys() - known)!r}; known are {', '.join(known)}")
        topic = values.get("topic")
        if not isinstance(topic, str):
            raise FaultError("topic must be the name of a topic")
        partition = _number(values, "partition", 2**31 - 1, 0)
        producer_id = _number(values, "producer_id", 2**63 - 1)
        replica = self._services.replica(topic, partition)
        kind = values["fault"]
        before = replica.log.producers.entry(producer_id)
        if kind == "forget":
            self._forget(replica, producer_id, before)
        elif kind == "expire":
            self._expire(replica, producer_id, before)
        else:
            sequence = _number(values, "next_sequence", MAX_SEQUENCE, NEAR_THE_WRAP)
            epoch = _number(values, "producer_epoch", _MAX_EPOCH, before.producer_epoch if before else 0)
            self._move(replica, producer_id, epoch, sequence, before)
        changed = {
            "fault": kind,
            "topic": topic,
            "partition": partition,
            "producer_id": producer_id,
            "last_sequence_before": before.last_sequence if before else None,
        }
        if kind == "sequence":
            changed |= {"next_sequence": sequence, "producer_epoch": epoch}
        logger.warning("producer_fault_applied", **changed)
        return changed

    def _forget(self, replica: Replica, producer_id: int, before: ProducerEntry | None) -> None:
        _known(replica, producer_id, before)
        replica.log.producers.forget(producer_id)

    def _expire(self, replica: Replica, producer_id: int, before: ProducerEntry | None) -> None:
        _without_transaction(_known(replica, producer_id, before))
        replica.log.producers.forget(producer_id)
        logger.info("producer_ids_expired", count=1)

    def _move(
        self, replica: Replica, producer_id: int, epoch: int, next_sequence: int, before: ProducerEntry | None
    ) -> None:
        if before is not None:
            _without_transaction(before)
        elif producer_id >= self._services.producer_ids.bound():
            raise UnknownProducerError(
                f"producer id {producer_id} was never issued; ask InitProducerId for one"
            )
        replica.log.set_next_sequence(producer_id, epoch, next_sequence, self._services.clock_ms())


def _known(replica: Replica, producer_id: int, entry: ProducerEntry | None) -> ProducerEntry:
    if entry is None:
        raise UnknownProducerError(
            f"{replica.topic}-{replica.partition} remembers no producer {producer_id};"
            f" `tidelog producers {replica.topic}` lists those it does"
        )
    return entry


def _without_transaction(entry: ProducerEntry) -> None:
    if entry.current_txn_start_offset >= 0:
        raise FaultError(
            f"producer {entry.producer_id} has a transaction open; a broker neither expires nor moves it then"
        )


def _number(values: Mapping[str, object], name: str, high: int, default: int | None = None) -> int:
    value = values.get(name)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise FaultError(f"{name}: expected a whole number from 0 to {high}, got {value!r}")
    return value
