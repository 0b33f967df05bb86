"""Produce: append in the order of arrival, answer once every partition's batch is durable.

Owns the answer to a ProduceRequest. A call returns the response itself, or a LateAnswer that group commit
completes. No future, no task, no decoding.

Every batch is inspected before it is appended, usually on the loop. If that may take more than an `Effort`, a
thread does it, for one request at a time, so that decompressed data stays bounded; the answer is then a
LateEffect. So is that of a request of version 12 whose partitions do not take part in its transaction yet.

Invariants:
- nothing awaits between the first append of a request and the last, and requests behind a LateEffect wait
  until it has appended, so batches of one connection are stored in the order they were sent;
- no batch is stored that a consumer could not decode;
- a batch begins a transaction only on a partition that the coordinator has in that transaction;
- one bad partition fails alone; a duplicate is answered like its original, once that is durable;
- with acks=all the answer comes after fdatasync, or after timeout_ms (rounded up to the next `SWEEP_MS`) with
  REQUEST_TIMED_OUT, after which the batch may or may not become durable: a retry gives the answer;
- acks=1 is answered from the page cache, or after the flush that flush.messages asks for, and acks=all too
  where acks.all.durable is false; acks=0 is not answered at all; any other value is INVALID_REQUIRED_ACKS;
- a refusal of acks=0 closes the connection, as in Kafka: the client can be informed in no other way;
- a refusal by an existing partition names the log's start: for code 59 clients use it to decide whether
  retention has removed their last batch.

Event loop only. Views in the request are invalid once the call returns.
Source: Kafka's ReplicaManager.appendRecords and ProduceRequest.validateRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.broker.coordinator.transactions.transaction import Producer, TopicPartition
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.handlers.context import CloseConnection, LateAnswer, LateEffect, RequestContext
from tidelog.broker.handlers.produce_answers import (
    Deadlines,
    PendingProduce,
    ProduceResponse,
    refused,
)
from tidelog.broker.handlers.produce_inspection import RECORD_BYTES_AN_ELEMENT, BatchInspection, Verdict
from tidelog.broker.handlers.produce_requests import (
    FIRST_VERSION_WITH_ZSTD,
    all_refused,
    check_records,
    copied,
    is_transactional,
    named_twice,
    size_bytes,
)
from tidelog.broker.handlers.produce_transactions import ProduceTransactions, for_producers
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.replica import ACKS_ALL, Replica
from tidelog.broker.security.required_access import WRITE_TOPIC, WRITE_TRANSACTION
from tidelog.broker.services import Services
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.broker.storage.partition_log import AppendResult
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import NO_LEADER, ProducePartitionResult, ProduceRequest
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.types import NO_OFFSET, Buffer

_NONE = ErrorCode.NONE
_OLD_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""Clients take this code for success, so the batch must be durable too."""
_new_tuple = tuple.__new__
ANSWERED_ACKS = frozenset((ACKS_ALL, 1))
"""The values of acks with which a batch is appended and answered."""
_VALID_ACKS = ANSWERED_ACKS | {0}
_WRITE = WRITE_TOPIC.bit
_NOT_THE_BROKERS_FAULT = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Codes that Kafka does not count as failed produce requests of the topic."""
_NAMES_NO_TRANSACTION = "a batch of a transaction needs a request that names its transactional id"
_NAMED_TWICE = "the request names this partition more than once"
ELEMENTS_AN_APPEND = 4
"""An append counts as so many elements (see `protocol.steps`), and its bytes as more of them."""


class ProduceHandler:
    """Serves Produce 3-12."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = AccessControl(services)
        self._has_authorizer = self._access.is_on
        self.replicas = services.replicas
        self._metrics: Metrics = services.metrics
        self._events = services.events
        self.clock_ms = services.clock_ms
        self._loop = asyncio.get_running_loop()
        self._batch_appended = self._metrics.batch_appended
        self.deadlines = Deadlines()
        self._inspection = BatchInspection(services)
        self._transactions = ProduceTransactions(services, self._access)
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | LateAnswer | Steps[ProduceResponse | LateAnswer | None] | None:
        """Append every batch; the response, a LateAnswer of it, or None when acks=0."""
        transactional_id, acks, _, topics = request
        if transactional_id is not None and not self._access.allows(
            context, WRITE_TRANSACTION, transactional_id
        ):
            if acks == 0:
                raise CloseConnection
            raise ApiError(WRITE_TRANSACTION.refusal)
        if acks not in _VALID_ACKS:
            return all_refused(request, ErrorCode.INVALID_REQUIRED_ACKS)
        if len(topics) != 1 or len(topics[0][1]) != 1:
            return self._append_many(context, request)
        topic, partitions = topics[0]
        index, records = partitions[0]
        if transactional_id is not None and (lacking := finish(self._transactions.lacking(context, request))):
            return self._append_late(context, copied(request), lacking)
        results: list[ProducePartitionResult] = []
        response = [(topic, results)]
        try:
            pending = self._append(context, request, topic, index, records, Effort(), results, response, None)
        except TooMuchError:
            return self._append_late(context, copied(request))
        return self._answer(context, request, response, pending)

    def _append_many(
        self, context: RequestContext, request: ProduceRequest
    ) -> Steps[ProduceResponse | LateAnswer | None]:
        lacking = yield from self._transactions.lacking(context, request)
        if lacking:
            return self._append_late(context, copied(request), lacking)
        try:
            verdicts = yield from self._inspection.of_all(request, Effort())
        except TooMuchError:
            return self._append_late(context, copied(request))
        return (yield from self._append_all(context, request, verdicts))

    def _append_late(
        self,
        context: RequestContext,
        request: ProduceRequest,
        lacking: Mapping[Producer, Sequence[TopicPartition]] | None = None,
    ) -> LateEffect:
        """Append in a later step of the loop: after a thread has inspected the batches, or after the
        partitions that are `lacking` take part in their transactions."""
        late = LateEffect(size_bytes(request))
        task = self._loop.create_task(self._append_later(context, request, late, lacking))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return late

    async def _append_later(
        self,
        context: RequestContext,
        request: ProduceRequest,
        late: LateEffect,
        lacking: Mapping[Producer, Sequence[TopicPartition]] | None,
    ) -> None:
        try:
            to_retry = await self._transactions.add(request, lacking or {})
            verdicts = await self._inspection.later(request, in_a_thread=lacking is None)
            result = await self._services.turns.run(self._append_all(context, request, verdicts, to_retry))
        except Exception as error:
            late.give(error)
            return
        if isinstance(result, LateAnswer):
            late.take_effect()
            result.then(late.give)
        else:
            late.give(result)

    def _append_all(
        self,
        context: RequestContext,
        request: ProduceRequest,
        verdicts: Sequence[Verdict],
        to_retry: Mapping[tuple[str, int], ApiError] = {},
    ) -> Steps[ProduceResponse | PendingProduce | None]:
        """Append all but `to_retry`. Each partition must be named once: two answers for one could not be
        distinguished.
        """
        repeated = yield from named_twice(request)
        pace = Pace()
        response: ProduceResponse = []
        pending: PendingProduce | None = None
        if request.acks != 0:
            # Made first: batches may become durable, or the time may run out, before the last one is
            # appended.
            pending = PendingProduce(response, request.timeout_ms, self.deadlines)
            pending.expect_more()
        verdict_of_next = iter(verdicts)
        for topic, partitions in request.topics:
            results: list[ProducePartitionResult] = []
            response.append((topic, results))
            for index, records in partitions:
                verdict = next(verdict_of_next)
                if (topic, index) in repeated:
                    results.append(refused(index, ErrorCode.INVALID_REQUEST, _NAMED_TWICE))
                elif error := to_retry.get((topic, index)):
                    results.append(refused(index, for_producers(error.code), error.message))
                else:
                    self._append(context, request, topic, index, records, verdict, results, response, pending)
                if pace.spent(ELEMENTS_AN_APPEND + len(records or b"") // RECORD_BYTES_AN_ELEMENT):
                    yield
            if pace.spent():
                yield
        if pending is not None:
            pending.all_appended()
        return self._answer(context, request, response, pending)

    def _append(
        self,
        context: RequestContext,
        request: ProduceRequest,
        topic: str,
        index: int,
        records: Buffer | None,
        inspected: Verdict | Effort,
        results: list[ProducePartitionResult],
        response: ProduceResponse,
        pending: PendingProduce | None,
    ) -> PendingProduce | None:
        """Append one batch; returns what waits for it and for those before.

        With an effort it is inspected here. Raises TooMuchError; then nothing has happened.
        """
        if self._has_authorizer:
            # For each batch, so what is decided already is looked up here.
            access = context.connection.access
            if (access is None or not access.topics[topic] & _WRITE) and not self._access.allows(
                context, WRITE_TOPIC, topic
            ):
                results.append(refused(index, WRITE_TOPIC.refusal, WRITE_TOPIC.refusal.message))
                return pending
            if request.transactional_id is None and is_transactional(records):
                results.append(refused(index, WRITE_TRANSACTION.refusal, _NAMES_NO_TRANSACTION))
                return pending
        version = context.header.api_version
        replica = self.replicas.get((topic, index))
        try:
            if replica is None:
                raise self._services.missing(topic, index)
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}.")
            if records is None or version < FIRST_VERSION_WITH_ZSTD:
                records = check_records(records, version)
            if request.acks == ACKS_ALL and replica.log.config.min_insync_replicas > 1:
                self._check_in_sync(topic, index, replica.log.config.min_insync_replicas)
            if request.transactional_id is None:
                written = replica.append_as_leader(records, self.clock_ms(), inspected)
            else:
                permit = partial(self._transactions.permit, request.transactional_id, version, topic, index)
                written = replica.append_as_leader(records, self.clock_ms(), inspected, permit=permit)
        except ApiError as error:
            start_offset = NO_OFFSET if replica is None else replica.log.start_offset
            row = refused(index, error.code, error.message, start_offset)
            results.append(row._replace(record_errors=error.record_errors))
            self._count_refusal(topic, error.code)
            return pending
        if replica.waits_for_flush(request.acks):
            if pending is None:
                pending = PendingProduce(response, request.timeout_ms, self.deadlines)
            result = pending.wait_for(replica, written, results)
        else:
            result = replica.soon_durable(written)
        base_offset, _, append_time_ms, start_offset, _ = result
        code = _NONE if base_offset >= 0 else _OLD_DUPLICATE
        # Not by the constructor, whose defaults cost as much as all the rest.
        fields = index, code, base_offset, append_time_ms, start_offset, None, (), NO_LEADER
        results.append(_new_tuple(ProducePartitionResult, fields))
        self.count_append(topic, result, len(records))
        return pending

    def count_append(self, topic: str, result: AppendResult, size_bytes: int) -> None:
        """Count a batch that was stored, or was stored before."""
        base_offset, last_offset, _, _, is_duplicate = result
        if is_duplicate:
            self._metrics.duplicate("in_window" if base_offset >= 0 else "below_window")
        else:
            self._batch_appended(topic, last_offset - base_offset + 1, size_bytes)

    def may_append(
        self, connection: ConnectionState, topic: str, replica: Replica, acks: int, records: Buffer
    ) -> bool:
        """Whether a request without a transactional id may append to a replica, as far as is known at once.
        Internal topics are not asked for."""
        if self._has_authorizer:
            access = connection.access
            if access is None or not access.topics[topic] & _WRITE or is_transactional(records):
                return False
        return acks != ACKS_ALL or replica.log.config.min_insync_replicas <= 1

    def _check_in_sync(self, topic: str, index: int, least: int) -> None:
        """Raise ApiError unless so many replicas are in sync that acks=all may be asked for."""
        known = self._services.catalog.topic(topic)
        isr = () if known is None else known.partitions[index].isr
        if len(isr) < least:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(isr)} is insufficient to satisfy the min.isr requirement"
                f" of {least} for partition {topic}-{index}: set min.insync.replicas to what the cluster has",
            )

    def _answer(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        pending: PendingProduce | None,
    ) -> ProduceResponse | PendingProduce | None:
        if request.acks == 0:
            self._close_if_refused(context, response)
            return None
        return response if pending is None or pending.is_given else pending

    def _close_if_refused(self, context: RequestContext, response: ProduceResponse) -> None:
        """Raise CloseConnection when anything of an acks=0 request was not stored."""
        for topic, results in response:
            for result in results:
                if result.error_code not in (_NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._events.warning(
                        "connection_closed_acks_0_refused",
                        context.connection.client_host,
                        peer=context.connection.client_host,
                        client_id=context.header.client_id,
                        topic=topic,
                        partition=result.index,
                        error=ErrorCode(result.error_code).name,
                    )
                    raise CloseConnection

    def _count_refusal(self, topic: str, code: ErrorCode) -> None:
        metrics = self._metrics
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            metrics.out_of_order()
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            metrics.fenced()
        if code not in _NOT_THE_BROKERS_FAULT:
            metrics.produce_failed(topic)
