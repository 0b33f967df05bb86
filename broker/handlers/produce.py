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
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.replica import ACKS_ALL, Replica
from tidelog.broker.security.required_access import WRITE_TOPIC, WRITE_TRANSACTION
from tidelog.broker.services import Services
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import AppendResult
from tidelog.broker.storage.recompression import Inspected, inspect_to_store
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.hot import NO_LEADER, ProducePartitionResult, ProduceRequest
from tidelog.protocol.records import BATCH_HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_batch_header
from tidelog.protocol.steps import GLANCES_A_STEP, Pace, Steps, each, finish
from tidelog.protocol.types import NO_OFFSET, Buffer

Verdict = Inspected | ApiError | None

_NONE = ErrorCode.NONE
_OLD_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""Clients take this code for success, so the batch must be durable too."""
_new_tuple = tuple.__new__
_VALID_ACKS = frozenset((-1, 0, 1))
_WRITE = WRITE_TOPIC.bit
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07
_FIRST_VERSION_WITH_ZSTD = 7
_FIRST_VERSION_WITH_ABORTABLE = 11
_ADDS_PARTITIONS_FROM = 12
_OF_THE_COORDINATOR = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What producers get for the coordinator's code: one that each of them knows, and retries where it may."""
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
_NAMED_TWICE = "the request names this partition more than once"
ELEMENTS_AN_APPEND = 4
RECORD_BYTES_AN_ELEMENT = 8 * 1024
"""An append counts as this many elements (see `protocol.steps`), and one more per so many bytes."""


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
        self._thread = asyncio.Lock()
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
            return _allrefused(request, ErrorCode.INVALID_REQUIRED_ACKS)
        if len(topics) != 1 or len(topics[0][1]) != 1:
            return self._append_many(context, request)
        topic, partitions = topics[0]
        index, records = partitions[0]
        if request.transactional_id is not None and context.header.api_version >= _ADDS_PARTITIONS_FROM:
            lacking = finish(self._lacking(context, request))
            if lacking:
                return self._append_late(context, _copied(request), lacking)
        results: list[ProducePartitionResult] = []
        response = [(topic, results)]
        try:
            pending = self._append(context, request, topic, index, records, Effort(), results, response, None)
        except TooMuchError:
            return self._append_late(context, _copied(request))
        return self._answer(context, request, response, pending)

    def _inspected(self, topic: str, index: int, batch: Buffer | None, effort: Effort | None) -> Verdict:
        """The result of `inspect_to_store`, None if nothing is to be inspected. Raises TooMuchError."""
        replica = self.replicas.get((topic, index))
        return None if batch is None or replica is None else _inspected(batch, replica.log.config, effort)

    def _append_many(
        self, context: RequestContext, request: ProduceRequest
    ) -> Steps[ProduceResponse | LateAnswer | None]:
        if request.transactional_id is not None and context.header.api_version >= _ADDS_PARTITIONS_FROM:
            lacking = yield from self._lacking(context, request)
            if lacking:
                return self._append_late(context, _copied(request), lacking)
        try:
            verdicts = yield from self._all_inspected(request, Effort())
        except TooMuchError:
            return self._append_late(context, _copied(request))
        return (yield from self._append_all(context, request, verdicts))

    def _all_inspected(self, request: ProduceRequest, effort: Effort | None) -> Steps[list[Verdict]]:
        pace = Pace()
        verdicts: list[Verdict] = []
        for topic, partitions in request.topics:
            for index, batch in partitions:
                verdicts.append(self._inspected(topic, index, batch, effort))
                if pace.spent(1 + len(batch or b"") // RECORD_BYTES_AN_ELEMENT):
                    yield
            if pace.spent():
                yield
        return verdicts

    def _lacking(
        self, context: RequestContext, request: ProduceRequest
    ) -> Steps[dict[Producer, list[TopicPartition]]]:
        """The partitions that do not take part in the transactions yet which batches of the request name."""
        pace = Pace()
        lacking: dict[Producer, list[TopicPartition]] = {}
        permits = self._services.transactions.permits
        for topic, partitions in request.topics:
            if not self._access.shows(context, WRITE_TOPIC, topic):
                continue  # The append refuses it.
            for index, batch in partitions:
                producer = _transactional_producer(batch)
                if producer is not None and (topic, index) in self.replicas and topic not in INTERNAL_TOPICS:
                    code = permits(request.transactional_id or "", *producer, topic, index)
                    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS):
                        lacking.setdefault(producer, []).append(TopicPartition(topic, index))
                if pace.spent():
                    yield
            if pace.spent():
                yield
        return lacking

    def _append_late(
        self,
        context: RequestContext,
        request: ProduceRequest,
        lacking: Mapping[Producer, Sequence[TopicPartition]] | None = None,
    ) -> LateEffect:
        """Append in a later step of the loop: after a thread has inspected the batches, or after the
        partitions that are `lacking` take part in their transactions."""
        late = LateEffect(_size_bytes(request))
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
            to_retry: dict[tuple[str, int], ApiError] = {}
            for producer, partitions in (lacking or {}).items():
                try:
                    await self._services.transactions.add_partitions(
                        request.transactional_id or "", producer, partitions
                    )
                except ApiError as error:
                    # Else the append finds that they do not take part, and why. But what may be added later
                    # may not be found then: the transaction before it may have ended meanwhile.
                    if error.code.retriable:
                        to_retry.update(dict.fromkeys(partitions, error))
            verdicts = await self._inspected_late(request, in_a_thread=lacking is None)
            result = await self._services.turns.run(self._append_all(context, request, verdicts, to_retry))
        except Exception as error:
            late.give(error)
            return
        if isinstance(result, LateAnswer):
            late.take_effect()
            result.then(late.give)
        else:
            late.give(result)

    async def _inspected_late(self, request: ProduceRequest, *, in_a_thread: bool) -> list[Verdict]:
        if not in_a_thread:
            try:
                return await self._services.turns.run(self._all_inspected(request, Effort()))
            except TooMuchError:
                pass

        def inspect() -> list[Verdict]:
            return finish(self._all_inspected(request, None))

        async with self._thread:
            return await asyncio.to_thread(inspect)

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
        repeated = yield from _named_twice(request)
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
                    results.append(
                        refused(index, _OF_THE_COORDINATOR.get(error.code, error.code), error.message)
                    )
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
        version = context.header.api_version
        replica = self.replicas.get((topic, index))
        try:
            if replica is None:
                raise self._services.missing(topic, index)
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}.")
            if records is None or version < _FIRST_VERSION_WITH_ZSTD:
                records = _check_records(records, version)
            if request.acks == ACKS_ALL and replica.log.config.min_insync_replicas > 1:
                self._check_in_sync(topic, index, replica.log.config.min_insync_replicas)
            if request.transactional_id is None:
                written = replica.append_as_leader(records, self.clock_ms(), inspected)
            else:
                permit = partial(self._permit, request.transactional_id, version, topic, index)
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

    def may_append(self, connection: ConnectionState, topic: str, replica: Replica, acks: int) -> bool:
        """Whether a request without a transactional id may append to a replica, as far as is known at once.
        Internal topics are not asked for."""
        if self._has_authorizer:
            access = connection.access
            if access is None or not access.topics[topic] & _WRITE:
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

    def _permit(
        self, transactional_id: str, version: int, topic: str, index: int, begins: BatchHeader
    ) -> None:
        """Raise ApiError unless the coordinator has this partition in the transaction that a batch begins."""
        producer_id, epoch = begins.producer_id, begins.producer_epoch
        verifier = self._services.transaction_verifier
        code = verifier.permits(transactional_id, producer_id, epoch, topic, index)
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.INVALID_TXN_STATE and version >= _FIRST_VERSION_WITH_ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        raise ApiError(
            _OF_THE_COORDINATOR.get(code, code),
            f"transactional id {transactional_id} has no ongoing transaction of producer {begins.producer_id}"
            f" epoch {begins.producer_epoch} with {topic}-{index}: {code.name}",
        )

    def _answer(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        pending: PendingProduce | None,
    ) -> ProduceResponse | PendingProduce | None:
        if request.acks == 0:
            self._close_ifrefused(context, response)
            return None
        return response if pending is None or pending.is_given else pending

    def _close_ifrefused(self, context: RequestContext, response: ProduceResponse) -> None:
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


def _inspected(batch: Buffer, config: LogConfig, effort: Effort | None) -> Verdict:
    """`inspect_to_store`, but a refusal is returned; None if there is no batch. Raises TooMuchError."""
    try:
        header = read_batch_header(batch)
        if header.batch_length + LOG_OVERHEAD == len(batch):
            return inspect_to_store(batch, header, config, effort)
    except ApiError as error:
        return error
    except ProtocolError:
        pass
    return None


def _transactional_producer(batch: Buffer | None) -> Producer | None:
    """The producer of a batch that belongs to a transaction; None for any other batch."""
    if batch is None or len(batch) < BATCH_HEADER_SIZE:
        return None
    try:
        header = read_batch_header(batch)
    except ProtocolError:
        return None
    if not header.is_transactional or header.producer_id < 0:
        return None
    return Producer(header.producer_id, header.producer_epoch)


def _size_bytes(request: ProduceRequest) -> int:
    return sum(len(batch) for _, partitions in request.topics for _, batch in partitions if batch is not None)


def _copied(request: ProduceRequest) -> ProduceRequest:
    """A copy whose batches stay valid after the frame."""
    topics = [
        (topic, [(index, None if batch is None else bytes(batch)) for index, batch in partitions])
        for topic, partitions in request.topics
    ]
    return request._replace(topics=topics)


def _check_records(records: Buffer | None, version: int) -> Buffer:
    """Check the records of a partition against the request's version. Raises ApiError."""
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a Produce request must carry one record batch a partition")
    if len(records) >= BATCH_HEADER_SIZE and records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK == Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {_FIRST_VERSION_WITH_ZSTD}, the request is version {version}",
        )
    return records


def _named_twice(request: ProduceRequest) -> Steps[set[tuple[str, int]]]:
    """The partitions that the request names more than once."""
    pace = Pace(GLANCES_A_STEP)
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic, partitions in request.topics:
        for index, _ in partitions:
            key = (topic, index)
            (repeated if key in seen else seen).add(key)
            if pace.spent():
                yield
        if pace.spent():
            yield
    return repeated


def _allrefused(request: ProduceRequest, code: ErrorCode) -> Steps[ProduceResponse]:
    pace = Pace(GLANCES_A_STEP)
    response: ProduceResponse = []
    for topic, partitions in request.topics:
        results = yield from each(lambda part: refused(part[0], code, code.message), partitions, pace)
        response.append((topic, results))
        if pace.spent():
            yield
    return response
