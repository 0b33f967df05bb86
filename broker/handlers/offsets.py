"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: positions in a log, and moving its start.

Owns the three answers. To a consumer the end of the log is the high watermark, so no offset is named that
a crash could take back. What was appended before the request came may have been acknowledged with acks=1, so
the answer waits until the high watermark has passed it.

Invariants: a partition fails alone; a partition named twice in one request is INVALID_REQUEST, as its
answers could not be told apart. Searches by timestamp may read the disk and run in a thread.

Called by dispatch on the event loop. Source: Kafka's KafkaApis.handleListOffsetRequest, KIP-79, KIP-320,
KIP-734 (max timestamp), KIP-107 (DeleteRecords).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.replica import Replica, all_caught_up
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
_MAX_TIMESTAMP_FROM = 7
TO_HIGH_WATERMARK = -1


class OffsetsHandler:
    """Serves ListOffsets 1-7, OffsetForLeaderEpoch 2-4 and DeleteRecords 0-2."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def list_offsets(
        self, context: RequestContext, request: Any
    ) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        named = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
        behind = self._behind(
            (topic, asked.partition_index) for topic, asked in named if asked.timestamp != EARLIEST_TIMESTAMP
        )
        by_time = any(asked.timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP) for _, asked in named)
        if behind or by_time:
            return self._list_later(context, request, behind, by_time=by_time)
        return self._list(context, request)

    def _behind(self, partitions: Iterable[tuple[str, int]]) -> list[Replica]:
        """Those of the replicas that hold what is not visible yet."""
        replicas = self._services.replicas
        named = (replicas.get(partition) for partition in dict.fromkeys(partitions))
        return [replica for replica in named if replica is not None and replica.is_behind]

    async def _list_later(
        self, context: RequestContext, request: Any, behind: Sequence[Replica], *, by_time: bool
    ) -> dict[str, Any]:
        """Wait for what is on its way to the disk, and look timestamps up in a thread."""
        await all_caught_up(behind)
        if not by_time:
            return self._list(context, request)
        return await asyncio.get_running_loop().run_in_executor(None, self._list, context, request)

    def _list(self, context: RequestContext, request: Any) -> dict[str, Any]:
        times = Counter(
            (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
        )
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        self._list_one(
                            (context.header.api_version, request.isolation_level),
                            topic.name,
                            asked,
                            repeated=times[topic.name, asked.partition_index] > 1,
                        )
                        for asked in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _list_one(
        self, version_and_isolation: tuple[int, int], topic: str, asked: Any, *, repeated: bool
    ) -> dict[str, Any]:
        version, isolation_level = version_and_isolation
        answer: dict[str, Any] = {
            "partition_index": asked.partition_index,
            "error_code": ErrorCode.NONE,
            "timestamp": NO_TIMESTAMP,
            "offset": NO_OFFSET,
            "leader_epoch": NO_LEADER_EPOCH,
        }
        try:
            if repeated:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
            if asked.timestamp < MAX_TIMESTAMP or (
                asked.timestamp == MAX_TIMESTAMP and version < _MAX_TIMESTAMP_FROM
            ):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            replica = self._services.replica(topic, asked.partition_index, asked.current_leader_epoch)
            found = _find(replica, asked.timestamp, isolation_level)
        except ApiError as error:
            answer["error_code"] = error.code
            return answer
        if found is not None:
            answer["offset"], answer["timestamp"], answer["leader_epoch"] = found
        return answer

    def offset_for_leader_epoch(
        self, context: RequestContext, request: Any
    ) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Where a leader epoch ended, so that a consumer can tell whether the log was cut behind it."""
        behind = self._behind(
            (topic.topic, asked.partition) for topic in request.topics for asked in topic.partitions
        )
        return self._ends_later(request, behind) if behind else self._ends_of_epochs(request)

    async def _ends_later(self, request: Any, behind: Sequence[Replica]) -> dict[str, Any]:
        await all_caught_up(behind)
        return self._ends_of_epochs(request)

    def _ends_of_epochs(self, request: Any) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [self._end_of_epoch(topic.topic, asked) for asked in topic.partitions],
                }
                for topic in request.topics
            ]
        }

    def _end_of_epoch(self, topic: str, asked: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {"error_code": ErrorCode.NONE, "partition": asked.partition}
        try:
            replica = self._services.replica(topic, asked.partition, asked.current_leader_epoch)
        except ApiError as error:
            answer["error_code"] = error.code
            return answer
        epoch, end_offset = replica.end_offset_for_epoch(asked.leader_epoch)
        answer["leader_epoch"], answer["end_offset"] = epoch, min(end_offset, replica.high_watermark)
        return answer

    async def delete_records(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Move the start of logs forward, durably; offset -1 means to the high watermark."""
        await all_caught_up(
            self._behind(
                (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
            )
        )
        topics = [
            {
                "name": topic.name,
                "partitions": [self._delete_before(topic.name, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
        try:
            await self._services.partitions.save_start_offsets()
        except OSError as error:
            self._services.events.error(
                "start_offsets_not_saved",
                context.client_host,
                error=str(error),
                advice="check the disk and its free space",
            )
            for topic in topics:
                for answer in topic["partitions"]:
                    if answer["error_code"] == ErrorCode.NONE:
                        answer["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR
        return {"topics": topics}

    def _delete_before(self, topic: str, asked: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "partition_index": asked.partition_index,
            "low_watermark": NO_OFFSET,
            "error_code": ErrorCode.NONE,
        }
        try:
            replica = self._services.replica(topic, asked.partition_index)
            high_watermark = replica.ends.high_watermark
            offset = high_watermark if asked.offset == TO_HIGH_WATERMARK else asked.offset
            if not 0 <= offset <= high_watermark:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} is not between 0 and the high watermark {high_watermark}",
                )
            replica.log.delete_records_before(offset)
            answer["low_watermark"] = replica.log.start_offset
        except ApiError as error:
            answer["error_code"] = error.code
        return answer


def _find(replica: Replica, timestamp: int, isolation_level: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of what was asked for, or None when no such record is visible."""
    log, end = replica.log, replica.ends.visible(isolation_level)
    if timestamp == LATEST_TIMESTAMP:
        return end, NO_TIMESTAMP, replica.leader_epoch
    if timestamp == EARLIEST_TIMESTAMP:
        return log.start_offset, NO_TIMESTAMP, log.leader_epoch_for(log.start_offset)
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found[0] >= end:
        return None
    return found[0], found[1], found[2]
