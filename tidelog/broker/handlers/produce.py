"""Produce: append in the order of arrival, answer once every partition's batch is durable.

Owns the answer to a ProduceRequest: the response, or a LateAnswer without future or task. A request of one
batch is served at once (one), others in steps that inspect all batches before an append (many). What takes
more than an `Effort` is inspected in a thread, for one request at a time, so that decompressed data stays
bounded; it takes effect later then (late), as where partitions do not take part in the transaction yet.

Invariants:
- nothing awaits between the first append of a request and the last, and requests behind one that is late wait
  until it has appended, so batches of one connection are stored in the order they were sent;
- no batch is stored that a consumer could not decode;
- a batch begins a transaction only on a partition that the coordinator has in that transaction;
- one bad partition fails alone; a duplicate is answered like its original, once that is durable;
- with acks=all the answer comes after fdatasync, or after timeout_ms (rounded up to the next `SWEEP_MS`) with
  REQUEST_TIMED_OUT, after which the batch may or may not become durable: a retry gives the answer;
- acks=1 is answered from the page cache, or after the flush that flush.messages asks for, and acks=all too
  where acks.all.durable is false; acks=0 is not answered at all; any other value is INVALID_REQUIRED_ACKS;
- a refusal of acks=0 closes the connection, as in Kafka: the client can be informed in no other way;
- a batch behind refused ones gets their code (`refused_batches`), whatever refused them;
- a refusal by an existing partition names the log's start: for code 59 clients use it to decide whether
  retention has removed their last batch.

Versions: 7 has zstd, 8 the records at fault, 11 TRANSACTION_ABORTABLE; 12 adds partitions to transactions; 13
has topic ids. Event loop only. Views in the request are invalid once the call returns. Source: Kafka's
ReplicaManager.appendRecords and ProduceRequest.validateRecords; KIP-516.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.context import CloseConnection, LateAnswer, RequestContext
from tidelog.broker.handlers.produce_answers import Deadlines, PendingProduce, ProduceResponse, refused
from tidelog.broker.handlers.produce_inspection import RECORD_BYTES_PER_ELEMENT, BatchInspection, Verdict
from tidelog.broker.handlers.produce_requests import NamedTopic, by_name, copied, named_twice, size_bytes
from tidelog.broker.handlers.produce_rules import OF_THE_REQUEST, ProduceRules
from tidelog.broker.handlers.produce_transactions import (
    NOTHING_SETTLED,
    ProduceTransactions,
    Settled,
    for_producers,
)
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.observability.producer_outcomes import Place
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import WRITE_TOPIC, WRITE_TRANSACTION
from tidelog.broker.services import Services
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.broker.storage.partition_log import AppendResult
from tidelog.broker.storage.refused_batches import RefusedBatches
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.hot import FIRST_BY_ID, NO_LEADER, ProducePartitionResult, ProduceRequest
from tidelog.protocol.records import BatchHeader, read_batch_header
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.types import NO_OFFSET, Buffer, TopicPartition

_NONE = ErrorCode.NONE
_OLD_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""Clients take this code for success, so the batch must be durable too."""
_new_tuple = tuple.__new__
_NOT_THE_BROKERS_FAULT = OF_THE_REQUEST | frozenset(
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
STEP_COST_APPEND = 4
"""The number of elements (see `protocol.steps`) of an append; its bytes count as more of them."""


class ProduceHandler(GuardedHandler):
    """Serves Produce 3-13."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.rules = ProduceRules(services, self._access)
        self._replicas: Mapping[tuple[str, int], Replica] = services.replicas
        self.name_of = services.catalog.name_of
        self._metrics: Metrics = services.metrics
        self._events = services.events
        self._outcomes = services.producer_outcomes
        self._refused_batches = RefusedBatches()
        self.clock_ms = services.clock_ms
        self._loop = asyncio.get_running_loop()
        self.batch_appended = self._metrics.batch_appended
        self.deadlines = Deadlines()
        self._inspection = BatchInspection(services)
        self._transactions = ProduceTransactions(services, self._access)
        self._tasks = Tasks()

    def __call__(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | LateAnswer | Steps[ProduceResponse | LateAnswer | None] | None:
        """Append every batch; the response, a LateAnswer of it, or None when acks=0."""
        if context.header.api_version >= FIRST_BY_ID:
            return self._serve_by_id(context, request)
        return self._serve(context, request)

    def _serve_by_id(
        self, context: RequestContext, request: ProduceRequest
    ) -> Steps[ProduceResponse | LateAnswer | None]:
        outcome = self._serve(context, (yield from by_name(request, self.name_of)))
        return (yield from outcome) if isinstance(outcome, Generator) else outcome

    def _serve(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | LateAnswer | Steps[ProduceResponse | LateAnswer | None] | None:
        transactional_id, acks, _, topics = request
        if transactional_id is not None and not self._access.allows(
            context, WRITE_TRANSACTION, transactional_id
        ):
            if acks == 0:
                raise CloseConnection
            raise ApiError(WRITE_TRANSACTION.refusal)
        is_one = len(topics) == 1 and len(topics[0][1]) == 1
        return (self._append_one if is_one else self._append_many)(context, request)

    def _append_one(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | LateAnswer | None:
        ((topic, ((index, records),)),) = request.topics
        if request.transactional_id is not None and (
            lacking := finish(self._transactions.lacking(context, request))
        ):
            return self._append_late(context, copied(request), lacking)
        results: list[ProducePartitionResult] = []
        response = [(topic, results)]
        try:
            pending = self._append(context, request, topic, index, records, Effort(), results, response, None)
        except TooMuchError:
            return self._append_late(context, copied(request))
        if request.acks == 0:
            self._close_if_refused(context, response)
            return None
        return response if pending is None or pending.is_given else pending

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
    ) -> LateAnswer:
        """Append in a later step of the loop: after a thread has inspected the batches, or after the
        partitions that are `lacking` were settled with the coordinator."""
        late = LateAnswer(size_bytes(request), is_effective=False)
        self._tasks.begin(self._append_later(context, request, late, lacking))
        return late

    async def _append_later(
        self,
        context: RequestContext,
        request: ProduceRequest,
        late: LateAnswer,
        lacking: Mapping[Producer, Sequence[TopicPartition]] | None,
    ) -> None:
        try:
            settled = await self._transactions.settle(context.header.api_version, request, lacking or {})
            verdicts = await self._inspection.later(request, in_a_thread=lacking is None)
            result = await self._services.turns.run(self._append_all(context, request, verdicts, settled))
        except ApiError as error:
            late.give(again(error))
            return
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
        settled: Settled = NOTHING_SETTLED,
    ) -> Steps[ProduceResponse | PendingProduce | None]:
        """Append all but those that are to be tried again. Each partition must be named once: two answers for
        one could not be distinguished.
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
                elif error := settled.to_retry.get((topic, index)):
                    error = ApiError(for_producers(error.code), error.message)
                    results.append(self._refused(context, topic, index, records or b"", error))
                else:
                    self._append(
                        context, request, topic, index, records, verdict, results, response, pending, settled
                    )
                if pace.spent(STEP_COST_APPEND + len(records or b"") // RECORD_BYTES_PER_ELEMENT):
                    yield
            if pace.spent():
                yield
        if pending is not None:
            pending.all_appended()
        if request.acks == 0:
            self._close_if_refused(context, response)
            return None
        return response if pending is None or pending.is_given else pending

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
        settled: Settled = NOTHING_SETTLED,
    ) -> PendingProduce | None:
        """Append one batch; returns what waits for it and for those before.

        With an effort it is inspected here. Raises TooMuchError; then nothing has happened.
        """
        transactional_id, acks, timeout_ms, _ = request
        records = b"" if records is None else records
        now_ms = self.clock_ms()
        try:
            replica = self.rules.replica_for(context, transactional_id, acks, topic, index, records)
            if transactional_id is None:
                written = replica.append_as_leader(records, now_ms, inspected)
            else:
                version = context.header.api_version
                permit = partial(self._transactions.permit, transactional_id, version, topic, index, settled)
                written = replica.append_as_leader(records, now_ms, inspected, permit=permit)
        except ApiError as error:
            results.append(self._refused(context, topic, index, records, error))
            return pending
        awaited = replica.awaited(acks)
        if awaited is None:
            result = replica.soon_durable(written)
        else:
            if pending is None:
                pending = PendingProduce(response, timeout_ms, self.deadlines)
            result = pending.wait_for(replica, awaited, written, results)
        base_offset, _, append_time_ms, start_offset, _ = result
        code = _NONE if base_offset >= 0 else _OLD_DUPLICATE
        # Not by the constructor, whose defaults cost as much as all the rest.
        fields = index, code, base_offset, append_time_ms, start_offset, None, (), NO_LEADER
        results.append(_new_tuple(ProducePartitionResult, fields))
        if result.duplicate:
            self.count_duplicate(replica, result, records)
        else:
            self.batch_appended(topic, result.last_offset - base_offset + 1, len(records))
        return pending

    def count_duplicate(self, replica: Replica, result: AppendResult, batch: Buffer) -> None:
        """Count a batch that was stored before."""
        in_window = result.base_offset >= 0
        self._metrics.duplicate("in_window" if in_window else "below_window")
        producer_id = read_batch_header(batch).producer_id
        self._outcomes.duplicate(_place(replica), producer_id, self.clock_ms(), in_window=in_window)

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

    def _refused(
        self, context: RequestContext, topic: str, index: int, records: Buffer, error: ApiError
    ) -> ProducePartitionResult:
        """The result of a refusal, counted."""
        replica = None if error.code in OF_THE_REQUEST else self._replicas.get((topic, index))
        with suppress(ProtocolError):
            header = read_batch_header(records)
            if header.producer_id >= 0:
                error = self._noted(replica, topic, index, header, error)
        code, metrics = error.code, self._metrics
        if code == WRITE_TOPIC.refusal:
            self._access.refused(context, WRITE_TOPIC, topic)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            metrics.out_of_order()
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            metrics.fenced()
        if code not in _NOT_THE_BROKERS_FAULT:
            metrics.produce_failed(topic)
        start_offset: int = NO_OFFSET if replica is None else replica.log.log_start_offset
        row = refused(index, code, error.message, start_offset)
        return row._replace(record_errors=error.record_errors)

    def _noted(
        self, replica: Replica | None, topic: str, index: int, header: BatchHeader, error: ApiError
    ) -> ApiError:
        """The refusal of a producer's batch, remembered: where only refused batches are missing before it, it
        gets their code (`refused_batches`)."""
        # By its id where the request has that: this broker may not know the name yet.
        key = topic.bytes if isinstance(topic, NamedTopic) else topic
        producers = None if replica is None else replica.log.producers
        now_ms = round(self._loop.time() * 1000)
        code = self._refused_batches.answered(key, index, header, error.code, producers, now_ms)
        if code is not error.code:
            text = f"{error.message}; what is missing was refused with {code.name}: send it again first"
            error = ApiError(code, text)
        if replica is not None:
            self._outcomes.refused(
                _place(replica),
                header.producer_id,
                header.producer_epoch,
                error.code,
                error.message,
                self.clock_ms(),
            )
        return error


def _place(replica: Replica) -> Place:
    return Place(replica.topic_id, replica.partition)
