"""FetchSnapshot: a follower that starts over gets the leader's producer state from before the start of its
log.

Owns the answer. A snapshot is that of the first batch of the log, whatever offset the request names, because
the log's start may have moved since; a follower begins at the offset that the answer names. It has the bytes
of a snapshot file (`storage.snapshot`).

Invariants: only a broker with a replica is answered; the pieces of one snapshot are of one moment: a snapshot
that does not fit into one answer is kept for `KEPT_SECONDS` after its last piece, at most `MOST_KEPT` at a
time. Without it the follower has to begin again (SNAPSHOT_NOT_FOUND).

Source: KIP-630, Kafka's KafkaRaftClient.handleFetchSnapshotRequest; of a partition of records it is ours.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.producer_table import FrozenTable
from tidelog.broker.storage.snapshot import encode_snapshot
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.records import read_batch_header
from tidelog.protocol.steps import Pace

MOST_KEPT: Final = 4
KEPT_SECONDS: Final = 60
_EPOCH: Final = -1
"""Of the id of each snapshot: its offset alone says which it is."""


class _Snapshot(NamedTuple):
    offset: int
    data: bytes


class SnapshotsHandler(GuardedHandler):
    """Serves FetchSnapshot 0-1."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._kept: dict[tuple[UUID, int], _Snapshot] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def fetch_snapshot(
        self, context: RequestContext, request: types.FetchSnapshotRequest
    ) -> DictOf[types.FetchSnapshotResponse]:
        if request.cluster_id not in (None, self._services.catalog.cluster_id):
            return {"error_code": ErrorCode.INCONSISTENT_CLUSTER_ID, "topics": []}
        left = min(request.max_bytes, self._services.config.fetch_max_bytes)
        topics: list[DictOf[types.FetchSnapshotResponseTopic]] = []
        pace = Pace()
        for topic in request.topics:
            partitions = []
            if pace.spent():
                await self._services.turns.next()
            for asked in topic.partitions:
                if pace.spent():
                    await self._services.turns.next()
                try:
                    answer = await self._piece(request.replica_id, topic.name, asked, left)
                except ApiError as error:
                    answer = {"index": asked.partition, "error_code": error.code, "snapshot_id": _id(-1)}
                left -= len(answer.get("unaligned_records", b""))
                partitions.append(answer)
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    async def _piece(
        self, replica_id: int, topic: str, asked: types.FetchSnapshotRequestPartition, most_bytes: int
    ) -> DictOf[types.FetchSnapshotResponsePartition]:
        """Raises ApiError."""
        replica = self._services.replica(topic, asked.partition, asked.current_leader_epoch)
        replica.check_follower(replica_id)
        key, position = (replica.topic_id, replica.partition), asked.position
        if position == 0:
            found = await _snapshot_of(replica)
        else:
            kept = self._kept.get(key)
            if kept is None or kept.offset != asked.snapshot_id.end_offset:
                raise ApiError(ErrorCode.SNAPSHOT_NOT_FOUND)
            found = kept
        if not 0 <= position <= len(found.data):
            raise ApiError(ErrorCode.POSITION_OUT_OF_RANGE)
        piece = found.data[position : position + max(most_bytes, 0)]
        if position + len(piece) < len(found.data):
            self._keep(key, found)
        return {
            "index": asked.partition,
            "snapshot_id": _id(found.offset),
            "size": len(found.data),
            "position": position,
            "unaligned_records": piece,
        }

    def _keep(self, key: tuple[UUID, int], snapshot: _Snapshot) -> None:
        self._kept.pop(key, None)
        self._kept[key] = snapshot
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._kept.clear)


def _id(offset: int) -> DictOf[types.SnapshotId]:
    return {"end_offset": offset, "epoch": _EPOCH}


async def _snapshot_of(replica: Replica) -> _Snapshot:
    """What is known of producers before the first batch. Raises ApiError."""
    log = replica.log
    offset = await asyncio.to_thread(_first_batch, log)
    frozen = log.producers.freeze()
    try:
        data = await asyncio.to_thread(_encoded, frozen, offset, log.folder)
    finally:
        log.producers.thaw()
    return _Snapshot(offset, data)


def _first_batch(log: PartitionLog) -> int:
    """Where the log's first batch begins: before the log's start, where DeleteRecords put that within it."""
    offset = log.start_offset
    for records in log.read(Read(offset, 1, log.end_offset)).records:
        offset = min(offset, read_batch_header(records).base_offset)
    return offset


def _encoded(frozen: FrozenTable, offset: int, folder: Path) -> bytes:
    from tidelog.broker.storage.producers_before import producers_before

    return encode_snapshot(producers_before(frozen, offset), offset, folder)
