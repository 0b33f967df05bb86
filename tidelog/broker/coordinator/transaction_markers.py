"""Writes the markers of a transaction whose outcome is decided, wherever its partitions are led.

Owns which partitions still lack their marker, and which broker is asked: the one that the catalog names as
the leader at the time of the attempt. Invariants:
- a partition of a topic that was deleted needs no marker, and one that refuses it because a later epoch has
  written there needs none either;
- markers of `__consumer_offsets` go through the coordinator of groups, so that what the transaction committed
  counts from then on;
- a marker may be written twice, because an answer was lost or a broker restarted: the second one changes
  nothing.

On the event loop. Source: Kafka's TransactionMarkerChannelManager.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence

import structlog

from tidelog.broker.cluster.catalog import NO_LEADER, OFFSETS_TOPIC
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.remote_transactions import Marked, RemoteTransactions
from tidelog.broker.coordinator.shards import CoordinatorParts
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.steps import Pace
from tidelog.protocol.types import TopicPartition

STEP_COST_MARKER = 4
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
logger = structlog.get_logger(__name__)
_Failed = dict[TopicPartition, ApiError]


class TransactionMarkers:
    """Writes markers for a transaction coordinator."""

    def __init__(self, parts: CoordinatorParts, groups: GroupCoordinator, remote: RemoteTransactions) -> None:
        self._parts, self._groups, self._remote = parts, groups, remote
        self._node_id = parts.settings.config.node_id

    async def write(
        self, marker: TransactionMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ApiError]:
        """Write the marker on these partitions, and return once it is durable: those that failed, and why."""
        writing: dict[TopicPartition, Awaitable[object]] = {}
        of_groups: list[TopicPartition] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        failed: _Failed = {}
        pace = Pace()
        for partition in sorted(partitions):
            leader_id = self._leader_of(partition)
            if leader_id == self._node_id and partition.topic == OFFSETS_TOPIC:
                of_groups.append(partition)
            elif leader_id == self._node_id:
                try:
                    writing[partition] = self._begin(marker, partition)
                except ApiError as error:
                    self._note(partition, error, failed)
            elif leader_id is not None:
                elsewhere.setdefault(leader_id, []).append(partition)
            if pace.spent(STEP_COST_MARKER):
                await asyncio.sleep(0)
        # Coroutines are made where nothing can come between: a cancellation would drop them.
        writing |= {each: self._groups.end_transaction(each.partition, marker) for each in of_groups}
        asked = [self._ask(node_id, marker, some, failed) for node_id, some in elsewhere.items()]
        outcomes = await asyncio.gather(*writing.values(), *asked, return_exceptions=True)
        for partition, outcome in zip(writing, outcomes, strict=False):
            if isinstance(outcome, ApiError):
                self._note(partition, outcome, failed)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ApiError):
                raise again(outcome)
        return failed

    def _leader_of(self, where: TopicPartition) -> int | None:
        """The broker that leads a partition, -1 for none; None if there is no such partition."""
        assigned = self._parts.catalog.assigned(*where)
        return None if assigned is None else assigned.leader_id

    def _begin(self, marker: TransactionMarker, where: TopicPartition) -> Awaitable[object]:
        """What is done when the marker is durable. Raises ApiError."""
        replica = self._parts.replicas.get(where)
        if replica is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.append_marker(marker, self._parts.clock_ms())

    async def _ask(
        self, node_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition], failed: _Failed
    ) -> None:
        """Let another broker write the marker; adds to `failed` the partitions that lack it still."""
        try:
            if node_id == NO_LEADER:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
            codes = await self._remote.write_markers(node_id, Marked(marker, partitions))
        except ApiError as error:
            failed.update(dict.fromkeys(partitions, again(error)))
            return
        for where in partitions:
            code = codes.get(where, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code != ErrorCode.NONE:
                self._note(where, ApiError(code, f"broker {node_id} answers {code.name}"), failed)

    def _note(self, where: TopicPartition, error: ApiError, failed: _Failed) -> None:
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
