"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: positions in a log, and moving its start.

Owns the three answers. For a consumer the end of the log is the high watermark, so no answer names an offset
that a crash could undo. What was appended before the request arrived may have been acknowledged with acks=1,
so the answer waits until it is durable here; it does not wait for followers: a new leader that does not know
yet what they hold says OFFSET_NOT_AVAILABLE, and that an epoch ended where its log ended when it was elected,
because consumers may have read that far. A follower gets the ends of all that is written.

Invariants: a partition fails alone; a partition named twice in one request is INVALID_REQUEST, because its
two answers could not be distinguished. Searches by timestamp may read the disk and run in a thread.

Versions: ListOffsets refuses a place that its version does not have (`_SPECIAL_FROM`), and says
LEADER_NOT_AVAILABLE instead of OFFSET_NOT_AVAILABLE up to 4. From OffsetForLeaderEpoch 3 on followers ask
too. Source: Kafka's KafkaApis.handleListOffsetRequest, KIP-79, KIP-320, KIP-734 (max timestamp), KIP-405,
KIP-1005 and KIP-1023 (places in remote storage), KIP-107 (DeleteRecords), KIP-207 (OFFSET_NOT_AVAILABLE).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.by_topic import answers_by_topic
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.replicas.leader import MovedStart
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replica_log import all_flushed
from tidelog.broker.security.required_access import CLUSTER_ACTION, DELETE_TOPIC, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import NO_OFFSET

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
_SPECIAL_FROM = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""Timestamp that means a place -> the first version that has it."""
_STARTS = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
_OF_REMOTE_STORAGE = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)
"""Places in remote storage: offset -1 where a log has none."""
_NEVER = 1 << 15
_FIRST_WITH_NOT_AVAILABLE = 5
_LOOK_SECONDS = 0.05
"""How often followers' log starts are checked: they come with their fetches, up to half a second apart."""
TO_HIGH_WATERMARK = -1
_AnswerT = TypeVar("_AnswerT", bound="Mapping[str, object]")


class OffsetsHandler(GuardedHandler):
    """Serves ListOffsets 1-11, OffsetForLeaderEpoch 2-4 and DeleteRecords 0-2."""

    def list_offsets(
        self, context: RequestContext, request: types.ListOffsetsRequest
    ) -> Steps[DictOf[types.ListOffsetsResponse] | Awaitable[DictOf[types.ListOffsetsResponse]]]:
        asked = _Asked(request.topics, "name", "partition_index")
        behind = yield from asked.look(
            self._services,
            partial(self._access.shows, context, DESCRIBE_TOPIC),
            lambda replica, partition: partition.timestamp not in _STARTS and replica.is_behind,
        )
        answer = self._list(context, asked, request.isolation_level)
        return self._once_visible(behind, answer) if behind else (yield from answer)

    def _list(
        self, context: RequestContext, asked: _Asked, isolation_level: int
    ) -> Steps[DictOf[types.ListOffsetsResponse] | Awaitable[DictOf[types.ListOffsetsResponse]]]:
        searches: list[_Search] = []
        topics = yield from asked.answers(partial(self._list_one, context, isolation_level, searches))
        if not searches:
            return {"topics": topics}
        tiering = self._services.tiering
        is_remote = tiering is not None and any(each.replica.log.remote for each in searches)
        return _search(topics, searches, tiering.fetches.threads if tiering and is_remote else None)

    def _list_one(
        self,
        context: RequestContext,
        isolation_level: int,
        searches: list[_Search],
        topic: str,
        asked: types.ListOffsetsRequestPartition,
    ) -> DictOf[types.ListOffsetsResponsePartition]:
        self._access.check(context, DESCRIBE_TOPIC, topic)
        timestamp = asked.timestamp
        if timestamp < 0 and context.header.api_version < _SPECIAL_FROM.get(timestamp, _NEVER):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        replica = self._services.replica(topic, asked.partition_index, asked.current_leader_epoch)
        end = replica.ends.visible(isolation_level)
        if timestamp == LATEST_TIMESTAMP:
            if code := _code_beyond_end(context, replica):
                raise ApiError(code)
            return {"offset": end, "leader_epoch": replica.leader_epoch}
        log = replica.log
        needs_remote = timestamp == EARLIEST_TIMESTAMP or timestamp in _OF_REMOTE_STORAGE
        if needs_remote and log.log_start_offset == NO_OFFSET:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "remote storage has not answered yet")
        if timestamp in _OF_REMOTE_STORAGE:
            if log.remote is None or not log.copied_end_offset:
                return {}
            is_last = timestamp == LATEST_TIERED_TIMESTAMP
            offset = log.copied_end_offset - is_last
            return {"offset": offset, "leader_epoch": log.leader_epoch_for(offset)}
        if timestamp in _STARTS:
            offset = log.log_start_offset if timestamp == EARLIEST_TIMESTAMP else log.start_offset
            return {"offset": offset, "leader_epoch": log.leader_epoch_for(offset)}
        answer: DictOf[types.ListOffsetsResponsePartition] = {}
        searches.append(_Search(answer, replica, timestamp, end, _code_beyond_end(context, replica)))
        return answer

    async def _once_visible(
        self, behind: Sequence[Replica], answer: Steps[_AnswerT | Awaitable[_AnswerT]]
    ) -> _AnswerT:
        """The answer, after what was appended before the request is durable."""
        await all_flushed(behind)
        result = await self._services.turns.run(answer)
        return (await result) if isinstance(result, Awaitable) else result

    def offset_for_leader_epoch(
        self, context: RequestContext, request: types.OffsetForLeaderEpochRequest
    ) -> Steps[
        DictOf[types.OffsetForLeaderEpochResponse] | Awaitable[DictOf[types.OffsetForLeaderEpochResponse]]
    ]:
        """Where a leader epoch ended, so that a consumer can detect a log truncated below its offset."""
        asked = _Asked(request.topics, "topic", "partition")
        behind = yield from asked.look(self._services, partial(self._shows_epochs, context))
        answer = self._ends_of_epochs(context, request.replica_id, asked)
        return self._once_visible(behind, answer) if behind else (yield from answer)

    def _ends_of_epochs(
        self, context: RequestContext, replica_id: int, asked: _Asked
    ) -> Steps[
        DictOf[types.OffsetForLeaderEpochResponse] | Awaitable[DictOf[types.OffsetForLeaderEpochResponse]]
    ]:
        return {"topics": (yield from asked.answers(partial(self._end_of_epoch, context, replica_id)))}

    def _shows_epochs(self, context: RequestContext, topic: str) -> bool:
        shows = self._access.shows
        return shows(context, CLUSTER_ACTION, CLUSTER_NAME) or shows(context, DESCRIBE_TOPIC, topic)

    def _end_of_epoch(
        self,
        context: RequestContext,
        replica_id: int,
        topic: str,
        asked: types.OffsetForLeaderEpochRequestPartition,
    ) -> DictOf[types.OffsetForLeaderEpochResponsePartition]:
        if not self._access.allows_one(context, (CLUSTER_ACTION, DESCRIBE_TOPIC), topic):
            raise ApiError(DESCRIBE_TOPIC.refusal)
        unled = None if replica_id < 0 else self._services.replicas.get((topic, asked.partition))
        if unled is not None and unled.is_unled:
            unled.check_leader_epoch(asked.current_leader_epoch)
            epoch, end_offset = unled.durable_end
            return {"leader_epoch": epoch, "end_offset": end_offset}
        replica = self._services.replica(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = replica.end_offset_for_epoch(asked.leader_epoch)
        if replica_id < 0:
            end_offset = min(end_offset, replica.highest_read)
        return {"leader_epoch": epoch, "end_offset": end_offset}

    async def delete_records(
        self, context: RequestContext, request: types.DeleteRecordsRequest
    ) -> DictOf[types.DeleteRecordsResponse]:
        """Move the start of logs forward, durably, on all live replicas; -1 means the committed end."""
        turns = self._services.turns
        asked = _Asked(request.topics, "name", "partition_index")
        may_delete = partial(self._access.shows, context, DELETE_TOPIC)
        unflushed = await turns.run(
            asked.look(self._services, may_delete, lambda replica, _: replica.is_unflushed)
        )
        await all_flushed(unflushed)
        moved: list[_Moved] = []
        remote: list[_MovedRemote] = []
        topics = await turns.run(
            asked.answers(partial(self._delete_before, context, moved, remote), low_watermark=NO_OFFSET)
        )
        for wanted in remote:
            await self._delete_remote_before(wanted, moved)
        try:
            starts = await self._services.partitions.save_start_offsets([each.start for each in moved])
        except OSError as error:
            self._services.events.error(
                "start_offsets_not_saved",
                context.connection.client_host,
                error=str(error),
                advice="check the disk and its free space",
            )
            for answer, _, _ in moved:
                answer |= {"low_watermark": NO_OFFSET, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
        else:
            deadline = asyncio.get_running_loop().time() + request.timeout_ms / 1000
            for each, start in zip(moved, starts, strict=True):
                await self._answer_moved(each, start, deadline)
        return {"topics": topics}

    async def _delete_remote_before(self, wanted: _MovedRemote, moved: list[_Moved]) -> None:
        """First in remote storage, durably: else a crash could leave a gap before the local segments."""
        try:
            if self._services.tiering is not None:
                await self._services.tiering.delete_before(wanted.replica, wanted.offset)
            wanted.replica.delete_records_before(wanted.offset)
        except ApiError as error:
            wanted.answer.update({"low_watermark": NO_OFFSET, "error_code": error.code})
        else:
            start = MovedStart(wanted.replica.log.log_start_offset)
            moved.append(_Moved(wanted.answer, wanted.replica, start))

    async def _answer_moved(self, moved: _Moved, start: int, deadline: float) -> None:
        """Answer once the log begins there on all live replicas, or the time is up: with the lowest start."""
        replica, loop = moved.replica, asyncio.get_running_loop()
        low_watermark = start
        while (leadership := replica.leadership) is not None:
            live = [each for each in leadership.assigned.replicas if self._services.is_live(each)]
            low_watermark = leadership.low_watermark(start, live)
            if low_watermark >= start:
                break
            if loop.time() >= deadline:
                moved.answer["error_code"] = ErrorCode.REQUEST_TIMED_OUT
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if replica.stopped is not None:
            moved.answer["error_code"] = replica.stopped
        moved.answer["low_watermark"] = min(low_watermark, start)

    def _delete_before(
        self,
        context: RequestContext,
        moved: list[_Moved],
        remote: list[_MovedRemote],
        topic: str,
        asked: types.DeleteRecordsRequestPartition,
    ) -> DictOf[types.DeleteRecordsResponsePartition]:
        self._access.check(context, DELETE_TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        replica = self._services.replica(topic, asked.partition_index)
        # Not the high watermark, which may pass what is not committed where acks.all.durable is false.
        committed = replica.ends.committed
        offset = committed if asked.offset == TO_HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= committed:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not between 0 and the committed end {committed}",
            )
        answer: DictOf[types.DeleteRecordsResponsePartition] = {}
        if replica.log.remote is not None:
            remote.append(_MovedRemote(answer, replica, offset))
            return answer
        moved.append(_Moved(answer, replica, replica.delete_records_before(offset)))
        return answer


def _code_beyond_end(context: RequestContext, replica: Replica) -> ErrorCode:
    """Not NONE while a new leader does not know yet how much of its log clients may read (KIP-207)."""
    if not replica.is_behind_its_epoch:
        return ErrorCode.NONE
    is_known = context.header.api_version >= _FIRST_WITH_NOT_AVAILABLE
    return ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE


class _Asked:
    """The partitions that a request names. One that it names twice is refused with INVALID_REQUEST.

    The two fields are those that hold a topic's name and a partition's index.
    """

    def __init__(self, topics: Sequence[Any], topic_field: str, index_field: str) -> None:
        self._topics = topics
        self._topic_field = topic_field
        self._index_field = index_field
        self._times: Counter[tuple[str, int]] = Counter()

    def look(
        self,
        services: Services,
        may: Callable[[str], bool],
        waits: Callable[[Replica, Any], bool] = lambda replica, _: replica.is_behind,
    ) -> Steps[list[Replica]]:
        """Replicas of partitions that must wait for a flush: without `waits`, those with records that are not
        visible yet. A topic that the client may not use is not waited for: that would show that it exists.
        """
        pace = Pace()
        waiting: list[Replica] = []
        for topic in self._topics:
            name = topic[self._topic_field]
            is_allowed = may(name)
            for partition in topic.partitions:
                key = (name, partition[self._index_field])
                self._times[key] += 1
                replica = services.replicas.get(key) if is_allowed else None
                if replica is not None and waits(replica, partition):
                    waiting.append(replica)
                if pace.spent():
                    yield
            if pace.spent():
                yield
        return list(dict.fromkeys(waiting))

    def answers(self, answer: Callable[[str, Any], Any], **refused: Any) -> Steps[list[Any]]:
        """The result of `answer(topic, partition)` for each; if it raises ApiError, code and `refused`."""
        asked = ((topic[self._topic_field], topic.partitions) for topic in self._topics)
        answer_one = partial(self._answer_one, answer, refused)
        return answers_by_topic(asked, answer_one, Pace(), name=self._topic_field)

    def _answer_one(
        self, answer: Callable[[str, Any], Any], refused: Mapping[str, Any], topic: str, partition: Any
    ) -> Any:
        index = partition[self._index_field]
        try:
            if self._times[topic, index] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names this partition more than once")
            found = answer(topic, partition)
        except ApiError as error:
            return {self._index_field: index, "error_code": error.code, **refused}
        found[self._index_field] = index
        found["error_code"] = ErrorCode.NONE
        return found


class _Moved(NamedTuple):
    """A log whose start was moved; the lowest start of its replicas is added to `answer`."""

    answer: DictOf[types.DeleteRecordsResponsePartition]
    replica: Replica
    start: MovedStart


class _MovedRemote(NamedTuple):
    """A log whose start is to be moved in remote storage too."""

    answer: DictOf[types.DeleteRecordsResponsePartition]
    replica: Replica
    offset: int


class _Search(NamedTuple):
    """A timestamp to look up; the offset is added to `answer`, the partition's answer."""

    answer: DictOf[types.ListOffsetsResponsePartition]
    replica: Replica
    timestamp: int
    end: int
    code_beyond_end: ErrorCode
    """What is answered where nothing is found before `end`."""


async def _search(
    topics: list[DictOf[types.ListOffsetsResponseTopic]],
    searches: Sequence[_Search],
    threads: Executor | None,
) -> DictOf[types.ListOffsetsResponse]:
    """Look timestamps up in a thread, because that may read the disk; in one of `threads` where that may wait
    for remote storage."""
    await asyncio.get_running_loop().run_in_executor(threads, _find_all, searches)
    return {"topics": topics}


def _find_all(searches: Iterable[_Search]) -> None:
    """In a thread: add to each answer the offset, timestamp and leader epoch, if such a record is visible."""
    for answer, replica, timestamp, end, code_beyond_end in searches:
        log = replica.log
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.max_timestamp_offset()
            else:
                found = log.offset_for_timestamp(timestamp)
        except ApiError as error:
            answer["error_code"] = error.code
            continue
        if found is not None and found[0] < end:
            answer["offset"], answer["timestamp"], answer["leader_epoch"] = found
        else:
            answer["error_code"] = code_beyond_end
