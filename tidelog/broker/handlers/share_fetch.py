"""ShareFetch and ShareAcknowledge: members acquire records, and say what became of them.

Owns the conversion between the wire and the share partitions, and what belongs to one session. Invariants:
- an acknowledgement is answered once it is durable, and runs to its end also if its client is gone;
- a partition's acknowledgements succeed or fail alone, and a partition's fetch does not depend on them;
- the last request of a session acknowledges first, then what the member still holds becomes available.

Versions: from 2 on, max_records may hold within a batch, members renew locks, and ShareAcknowledge says how
long these are. Source: Kafka's KafkaApis (handleShareFetchRequest, handleShareAcknowledgeRequest), KIP-932,
KIP-1206, KIP-1222.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias
from uuid import UUID

from tidelog.broker.beginning import begin
from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.brokers import address_of
from tidelog.broker.handlers.context import LateAnswer, RequestContext
from tidelog.broker.security.required_access import READ_TOPIC
from tidelog.broker.services import Services
from tidelog.broker.share.held import Stored
from tidelog.broker.share.partitions import Got, Wanted
from tidelog.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from tidelog.broker.share.share_partition import Acknowledgement, AcknowledgeType
from tidelog.broker.tasks import Tasks
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode

PARKED_BYTES = 4_000
"""Memory of a waiting ShareFetch, without its partitions."""
PARKED_PARTITION_BYTES = 800
_RECORD_LIMIT = 1
"""The acquire mode in which `max_records` holds within a batch (KIP-1206)."""
_Request: TypeAlias = "types.ShareFetchRequest | types.ShareAcknowledgeRequest"
_Asked = Mapping[SharePartitionKey, Sequence[Acknowledgement]]
_Results = dict[SharePartitionKey, ApiError | None]
"""Why each was refused; None: it is durable."""


class ShareFetchHandler(GuardedHandler):
    """Serves ShareFetch 1-2 and ShareAcknowledge 1-2."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._share = services.share
        self._partitions = services.share.partitions
        self._tasks = Tasks()

    def fetch(self, context: RequestContext, request: types.ShareFetchRequest) -> LateAnswer:
        """The response, when its acknowledgements are durable and there are records, or the wait is over."""
        group_id, member_id = _identity(request)
        asked = _acknowledgements(group_id, request)
        epoch = request.share_session_epoch
        asks_for_records = any(
            (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
        )
        if request.is_renew_ack and asks_for_records:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "expected max_bytes, min_bytes, max_records and max_wait_ms of 0 in a request that renews",
            )
        if epoch == INITIAL_EPOCH:
            if asked:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, "the first request of a share session cannot acknowledge"
                )
            connection = context.connection
            session = self._share.begin_session(group_id, member_id, connection.connection_id)
            connection.when_closed("share", partial(self._share.connection_closed, connection.connection_id))
        else:
            session = self._share.sessions.of(group_id, member_id, epoch)
        if epoch != FINAL_EPOCH:
            self._share.sessions.update(
                session,
                (
                    (topic.topic_id, each.partition_index)
                    for topic in request.topics
                    for each in topic.partitions
                ),
                (
                    (topic.topic_id, index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                ),
            )
        acknowledging = self._acknowledging(context, session, asked, is_renewing=request.is_renew_ack)
        held_bytes = PARKED_BYTES + PARKED_PARTITION_BYTES * (len(session.partitions) + len(asked))
        fetching = self._fetched(context, request, session, acknowledging)
        # Once the disk works on what is acknowledged: it does while records are acquired.
        return LateAnswer.of(fetching if asked else begin(fetching), held_bytes)

    async def _fetched(
        self,
        context: RequestContext,
        request: types.ShareFetchRequest,
        session: ShareSession,
        acknowledging: asyncio.Future[_Results],
    ) -> Mapping[str, object]:
        config = self._partitions.config(session.group_id)
        found: Mapping[SharePartitionKey, Got | ApiError] = {}
        if request.share_session_epoch == FINAL_EPOCH:
            await asyncio.shield(acknowledging)
            await asyncio.shield(self._share.end_session(session))
        elif request.max_records > 0 and request.max_bytes > 0:
            readable, refused = self._readable(context, session)
            max_bytes = min(
                request.max_bytes, self._services.config.fetch_max_bytes, context.connection.fetch_max_bytes
            )
            wanted = Wanted(
                session.member_id,
                request.max_records,
                max_bytes,
                min(request.min_bytes, max_bytes),
                0 if refused else max(0, min(request.max_wait_ms, self._services.config.fetch_max_wait_ms)),
                max(request.batch_size, 1),
                request.share_acquire_mode == _RECORD_LIMIT,
            )
            session.rotate()
            found = {**refused, **await self._partitions.fetch(readable, wanted, config)}
        acknowledged = await asyncio.shield(acknowledging)
        endpoints: dict[int, Mapping[str, object]] = {}
        topics: dict[UUID, list[Mapping[str, object]]] = {}
        for key in dict.fromkeys((*found, *acknowledged)):
            got, refusal = found.get(key), acknowledged.get(key)
            answer: dict[str, object] = {"partition_index": key.partition, "records": b""}
            if isinstance(got, ApiError):
                answer |= {"error_code": got.code, "error_message": got.message}
            elif got is not None:
                answer["records"] = got.records
                answer["acquired_records"] = [
                    {"first_offset": first, "last_offset": last, "delivery_count": count}
                    for first, last, count in got.acquired
                ]
                name = self._services.catalog.name_of(key.topic_id)
                if name:
                    self._services.metrics.bytes_out(name, got.size_bytes)
            if refusal is not None:
                answer["acknowledge_error_code"] = refusal.code
                answer["acknowledge_error_message"] = refusal.message
            for error in (got, refusal):
                if isinstance(error, ApiError) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    answer["current_leader"] = self._leader(context, key, endpoints)
            topics.setdefault(key.topic_id, []).append(answer)
        return {
            "acquisition_lock_timeout_ms": config.lock_duration_ms,
            "responses": _by_topic(topics),
            "node_endpoints": list(endpoints.values()),
        }

    def _readable(
        self, context: RequestContext, session: ShareSession
    ) -> tuple[list[SharePartitionKey], Mapping[SharePartitionKey, ApiError]]:
        """The partitions of the session that its member may read, and why it may not read the others."""
        readable: list[SharePartitionKey] = []
        refused: dict[SharePartitionKey, ApiError] = {}
        for key in session.partitions:
            error = self._refusal(context, key)
            if error is None:
                readable.append(key)
            else:
                refused[key] = error
        return readable, refused

    def _refusal(self, context: RequestContext, key: SharePartitionKey) -> ApiError | None:
        topic = self._services.catalog.topic_by_id(key.topic_id)
        if topic is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._access.allows(context, READ_TOPIC, topic.name):
            return ApiError(READ_TOPIC.refusal)
        if not topic.has_partition(key.partition):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def acknowledge(self, context: RequestContext, request: types.ShareAcknowledgeRequest) -> LateAnswer:
        """The response, when it is durable."""
        group_id, member_id = _identity(request)
        asked = _acknowledgements(group_id, request)
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareFetch begins a share session, with epoch 0"
            )
        session = self._share.sessions.of(group_id, member_id, epoch)
        if epoch == FINAL_EPOCH:
            acknowledging = self._acknowledging(context, session, asked, is_renewing=request.is_renew_ack)
            late = LateAnswer.of(self._tasks.at_once(self._ended(context, session, acknowledging)))
            late.task = None  # It runs to its end also if its client is gone.
            return late
        late = LateAnswer()

        def acknowledged(results: _Results) -> None:
            try:
                answer: object = self._acknowledged(context, group_id, results)
            except Exception as error:  # Else nobody would answer.
                answer = error
            late.give(answer)

        self._acknowledge(context, session, asked, acknowledged, is_renewing=request.is_renew_ack)
        return late

    async def _ended(
        self,
        context: RequestContext,
        session: ShareSession,
        acknowledging: asyncio.Future[_Results],
    ) -> Mapping[str, object]:
        results = await asyncio.shield(acknowledging)
        await self._share.end_session(session)
        return self._acknowledged(context, session.group_id, results)

    def _acknowledged(
        self, context: RequestContext, group_id: str, acknowledged: _Results
    ) -> Mapping[str, object]:
        endpoints: dict[int, Mapping[str, object]] = {}
        topics: dict[UUID, list[Mapping[str, object]]] = {}
        for key, refusal in acknowledged.items():
            answer: dict[str, object] = {"partition_index": key.partition}
            if refusal is not None:
                answer |= {"error_code": refusal.code, "error_message": refusal.message}
                if refusal.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    answer["current_leader"] = self._leader(context, key, endpoints)
            topics.setdefault(key.topic_id, []).append(answer)
        return {
            "acquisition_lock_timeout_ms": self._partitions.config(group_id).lock_duration_ms,
            "responses": _by_topic(topics),
            "node_endpoints": list(endpoints.values()),
        }

    def _acknowledging(
        self, context: RequestContext, session: ShareSession, asked: _Asked, *, is_renewing: bool
    ) -> asyncio.Future[_Results]:
        """Begin to acknowledge. Do not cancel it: the result is set in any case."""
        results: asyncio.Future[_Results] = asyncio.get_running_loop().create_future()
        self._acknowledge(context, session, asked, results.set_result, is_renewing=is_renewing)
        return results

    def _acknowledge(
        self,
        context: RequestContext,
        session: ShareSession,
        asked: _Asked,
        then: Callable[[_Results], None],
        *,
        is_renewing: bool,
    ) -> None:
        """Call `then` once all is durable or refused, perhaps within this call. It does not end with its
        client."""
        results: _Results = dict.fromkeys(asked)
        waiting = set(asked)
        if not asked:
            then(results)

        def stored(key: SharePartitionKey, error: ApiError | None) -> None:
            if key in waiting:
                results[key] = error
                waiting.discard(key)
                if not waiting:
                    then(results)

        for key, acknowledgements in asked.items():
            is_stored = partial(stored, key)
            try:
                refusal = self._refusal(context, key)
                if refusal is not None:
                    raise refusal
                if not is_renewing and any(AcknowledgeType.RENEW in each.types for each in acknowledgements):
                    message = "the request has renewals and does not say so (is_renew_ack)"
                    raise ApiError(ErrorCode.INVALID_REQUEST, message)
                held = self._partitions.present(key)
                if held is None:
                    self._tasks.begin(self._acknowledge_later(key, session, acknowledgements, is_stored))
                else:
                    held.acknowledge(session.member_id, acknowledgements, is_stored)
            except Exception as error:
                is_stored(self._refusal_for(error, key))

    async def _acknowledge_later(
        self,
        key: SharePartitionKey,
        session: ShareSession,
        acknowledgements: Sequence[Acknowledgement],
        stored: Stored,
    ) -> None:
        """Once the share partition is in memory."""
        try:
            held = await self._partitions.of(key)
            held.acknowledge(session.member_id, acknowledgements, stored)
        except Exception as error:
            stored(self._refusal_for(error, key))

    def _refusal_for(self, error: Exception, key: SharePartitionKey) -> ApiError:
        """Why a partition's acknowledgements failed. What nobody expects is logged."""
        if isinstance(error, ApiError):
            return error
        self._services.events.error(
            "share_acknowledgement_failed",
            key.group_id,
            group_id=key.group_id,
            topic_id=str(key.topic_id),
            partition=key.partition,
            error=repr(error),
            advice="report this",
            exc_info=error,
        )
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))

    def _leader(
        self, context: RequestContext, key: SharePartitionKey, endpoints: dict[int, Mapping[str, object]]
    ) -> Mapping[str, object]:
        """The leader of a partition, whose address is added to `endpoints`."""
        topic = self._services.catalog.topic_by_id(key.topic_id)
        if topic is None or not topic.has_partition(key.partition):
            return {"leader_id": -1, "leader_epoch": -1}
        assigned = topic.partitions[key.partition]
        listener = address_of(self._services, context, assigned.leader_id)
        if listener is None or assigned.leader_id == self._services.node_id:
            return {"leader_id": -1, "leader_epoch": -1}
        endpoints[assigned.leader_id] = {
            "node_id": assigned.leader_id,
            "host": listener.host,
            "port": listener.port,
        }
        return {"leader_id": assigned.leader_id, "leader_epoch": assigned.leader_epoch}


def _identity(request: _Request) -> tuple[str, str]:
    """Group and member of a request. Raises ApiError(INVALID_REQUEST)."""
    if not request.group_id or not request.member_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "expected a group id and a member id, got none")
    return request.group_id, request.member_id


def _acknowledgements(group_id: str, request: _Request) -> _Asked:
    """Copies: the request refers to a received frame."""
    asked: dict[SharePartitionKey, list[Acknowledgement]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = SharePartitionKey(group_id, topic.topic_id, partition.partition_index)
                asked.setdefault(key, []).extend(
                    Acknowledgement(each.first_offset, each.last_offset, list(each.acknowledge_types))
                    for each in partition.acknowledgement_batches
                )
    return asked


def _by_topic(topics: Mapping[UUID, Sequence[Mapping[str, object]]]) -> list[Mapping[str, object]]:
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
