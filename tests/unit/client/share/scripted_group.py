"""A share group with one partition, as scripts of a `ScriptedBroker`: what a share consumer can meet.

It has the rules that members notice: one session and one epoch after the other, records that are available,
acquired or done, their locks and delivery counts. A request that breaks a rule is refused as Kafka does it.
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

TOPIC_ID = UUID(int=7)
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class ScriptedGroup:
    """Locks last `lock_ms`. `outcomes` has what became of each record, by its offset."""

    def __init__(self, broker: ScriptedBroker, *values: bytes, lock_ms: int = 30_000) -> None:
        self.values = list(values)
        self.lock_ms = lock_ms
        self.outcomes: dict[int, int] = {}
        self.members: dict[str, int] = {}
        self.heartbeats = 0
        self.sessions: dict[str, int] = {}
        self.counts: dict[int, int] = {}
        self.renewals = 0
        self.fetch_limits: list[int] = []
        # What the next acknowledgements of the partition are answered.
        self.refusal = ErrorCode.NONE
        self._locks: dict[int, tuple[str, float]] = {}
        self._changed = asyncio.Event()
        self._broker = broker
        broker.is_concurrent = True
        broker.scripts |= {
            ApiKey.METADATA: self._metadata,
            ApiKey.FIND_COORDINATOR: lambda _: {"node_id": 1, "host": "127.0.0.1", "port": broker.port},
            ApiKey.SHARE_GROUP_HEARTBEAT: self._heartbeat,
            ApiKey.SHARE_FETCH: self._fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self._acknowledge,
        }

    def add(self, *values: bytes) -> None:
        self.values += values
        self._changed.set()

    def give_away(self, offset: int) -> None:
        """Another member has the record from now on."""
        self._locks[offset] = ("another", math.inf)

    @property
    def acquired(self) -> set[int]:
        return set(self._locks)

    def _metadata(self, request: Request) -> dict[str, object]:
        answer: dict[str, Any] = self._broker.metadata([each.name for each in request.values.topics or []])
        for topic in answer["topics"]:
            topic["topic_id"] = TOPIC_ID
        return answer

    def _heartbeat(self, request: Request) -> dict[str, object]:
        member_id, epoch = request.values.member_id, request.values.member_epoch
        self.heartbeats += 1
        if epoch < 0:
            self.members.pop(member_id, None)
            return {"member_epoch": epoch}
        self.members[member_id] = epoch or 1
        is_reader = TOPIC in (request.values.subscribed_topic_names or ())
        assigned = [{"topic_id": TOPIC_ID, "partitions": [0]}] if is_reader else []
        return {
            "member_id": member_id,
            "member_epoch": epoch or 1,
            "heartbeat_interval_ms": 100,
            "assignment": {"topic_partitions": assigned},
        }

    def _session(self, request: Request, *, may_open: bool) -> ErrorCode:
        member_id, epoch = request.values.member_id, request.values.share_session_epoch
        known = self.sessions.get(member_id)
        if epoch == 0 and may_open:
            self._release(member_id)  # As brokers do when the connection of a session ends.
            self.sessions[member_id] = 1
        elif known is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        elif epoch == -1:
            del self.sessions[member_id]
        elif epoch != known:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            self.sessions[member_id] = known + 1
        return ErrorCode.NONE

    def _release(self, member_id: str) -> None:
        for offset in [each for each, (who, _) in self._locks.items() if who == member_id]:
            del self._locks[offset]
        self._changed.set()

    def _applied(self, request: Request) -> dict[int, ErrorCode]:
        """The code of each partition with acknowledgements."""
        return {
            partition.partition_index: self._of_partition(request.values.member_id, partition)
            for topic in request.values.topics
            for partition in topic.partitions
            if partition.acknowledgement_batches
        }

    def _of_partition(self, member_id: str, partition: Any) -> ErrorCode:
        refusal, self.refusal = self.refusal, ErrorCode.NONE
        if refusal is not ErrorCode.NONE:
            return refusal
        now = asyncio.get_running_loop().time()
        kinds: dict[int, int] = {}
        for batch in partition.acknowledgement_batches:
            count = batch.last_offset - batch.first_offset + 1
            types = batch.acknowledge_types * (count if len(batch.acknowledge_types) == 1 else 1)
            kinds |= dict(zip(range(batch.first_offset, batch.last_offset + 1), types, strict=True))
        if any(self._locks.get(offset, ("", 0.0))[0] != member_id for offset in kinds):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in kinds.items():
            if kind == RENEW:
                self.renewals += 1
                self._locks[offset] = (member_id, now + self.lock_ms / 1000)
                continue
            del self._locks[offset]
            if kind != RELEASE:
                self.outcomes[offset] = kind
        self._changed.set()
        return ErrorCode.NONE

    def _acknowledge(self, request: Request) -> Mapping[str, object]:
        code = self._session(request, may_open=False)
        if code is not ErrorCode.NONE:
            return {"error_code": code}
        partitions = [
            {"partition_index": index, "error_code": each} for index, each in self._applied(request).items()
        ]
        if request.values.share_session_epoch == -1:
            self._release(request.values.member_id)
        responses = [{"topic_id": TOPIC_ID, "partitions": partitions}] if partitions else []
        return {"responses": responses, "acquisition_lock_timeout_ms": self.lock_ms}

    async def _fetch(self, request: Request) -> Mapping[str, object]:
        is_first = request.values.share_session_epoch == 0
        if is_first and any(each.partitions[0].acknowledgement_batches for each in request.values.topics):
            return {"error_code": ErrorCode.INVALID_REQUEST}
        code = self._session(request, may_open=True)
        if code is not ErrorCode.NONE:
            return {"error_code": code}
        codes = self._applied(request)
        self.fetch_limits.append(request.values.max_records)
        with suppress(TimeoutError):
            async with asyncio.timeout(request.values.max_wait_ms / 1000):
                while not self._available():
                    self._changed.clear()
                    await self._changed.wait()
        mine = self._available()[: request.values.max_records]
        lock_end = asyncio.get_running_loop().time() + self.lock_ms / 1000
        for offset in mine:
            self._locks[offset] = (request.values.member_id, lock_end)
            self.counts[offset] = self.counts.get(offset, 0) + 1
        ranges = [
            {"first_offset": each, "last_offset": each, "delivery_count": self.counts[each]} for each in mine
        ]
        partition = {
            "partition_index": 0,
            "acknowledge_error_code": codes.get(0, ErrorCode.NONE),
            "records": self._log() if mine else b"",
            "acquired_records": ranges,
        }
        return {
            "acquisition_lock_timeout_ms": self.lock_ms,
            "responses": [{"topic_id": TOPIC_ID, "partitions": [partition]}],
        }

    def _available(self) -> list[int]:
        now = asyncio.get_running_loop().time()
        self._locks = {offset: lock for offset, lock in self._locks.items() if lock[1] > now}
        taken = self._locks.keys() | self.outcomes.keys()
        return [offset for offset in range(len(self.values)) if offset not in taken]

    def _log(self) -> bytes:
        builder = RecordBatchBuilder()
        for value in self.values:
            builder.append(1_000, None, value)
        return bytes(builder.build())
