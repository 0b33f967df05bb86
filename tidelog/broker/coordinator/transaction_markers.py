"""Writes the markers of a transaction whose outcome is decided, on the partitions of this broker.

Owns which partitions still lack their marker. Invariants:
- a partition of a topic that was deleted needs no marker, and one that refuses it because a later epoch has
  written there needs none either;
- markers of `__consumer_offsets` go through the coordinator of groups, so that what the transaction committed
  counts from then on.

On the event loop. Source: Kafka's TransactionMarkerChannelManager.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, Catalog
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.transactions.transaction import TopicPartition
from tidelog.broker.replicas.replica import Replica
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.steps import Pace

STEP_COST_MARKER = 4
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
logger = structlog.get_logger(__name__)


@dataclass(eq=False)
class TransactionMarkers:
    """Writes markers for a transaction coordinator."""

    _catalog: Catalog
    _replicas: Mapping[tuple[str, int], Replica]
    _groups: GroupCoordinator
    _clock_ms: Callable[[], int]

    async def write(
        self, marker: TransactionMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ApiError]:
        """Write the marker on these partitions, and return once it is durable: those that failed, and why."""
        writing: dict[TopicPartition, Awaitable[object]] = {}
        failed: dict[TopicPartition, ApiError] = {}
        pace = Pace()
        for partition in sorted(partitions):
            try:
                durable = self._begin(marker, partition)
            except ApiError as error:
                self._note(partition, error, failed)
            else:
                if durable is not None:
                    writing[partition] = durable
            if pace.spent(STEP_COST_MARKER):
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*writing.values(), return_exceptions=True)
        for partition, outcome in zip(writing, outcomes, strict=True):
            if isinstance(outcome, ApiError):
                self._note(partition, outcome, failed)
            elif isinstance(outcome, BaseException):
                raise again(outcome)
        return failed

    def _begin(self, marker: TransactionMarker, where: TopicPartition) -> Awaitable[object] | None:
        """What is done when the marker is durable; None where it is not needed. Raises ApiError."""
        topic = self._catalog.topic(where.topic)
        if topic is None or not topic.has_partition(where.partition):
            return None
        if where.topic == OFFSETS_TOPIC:
            return self._groups.end_transaction(where.partition, marker)
        replica = self._replicas.get(where)
        if replica is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.append_marker(marker, self._clock_ms())

    def _note(self, where: TopicPartition, error: ApiError, failed: dict[TopicPartition, ApiError]) -> None:
        if error.code not in _FENCED:
            failed[where] = error
            return
        logger.warning(
            "transaction_marker_refused",
            topic=where.topic,
            partition=where.partition,
            error=str(error),
            advice="nothing to do: a later transaction of the producer has written there",
        )
