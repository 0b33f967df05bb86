"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions and ListTransactions.

Invariants: an answer is given once what it says is durable; a partition or an id that is named several times
is answered once; if a partition of a transaction is unknown, none of that request is added to it.

Versions: AddPartitionsToTxn is a client's up to 3, and may wait for the end of the transaction before; from 4
on brokers send it. A fenced producer gets PRODUCER_FENCED from 2 on. TRANSACTION_ABORTABLE comes from
AddPartitionsToTxn 5, AddOffsetsToTxn 4 and EndTxn 4 on. From EndTxn 5 on each transaction has an epoch of its
own. ListTransactions filters by duration from 1 on, by pattern from 2 on. Source: Kafka's KafkaApis, KIP-98,
KIP-360 (PRODUCER_FENCED), KIP-664, KIP-890, KIP-994 (durations), KIP-1152 (patterns).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.coordinator.consumer_groups.regexes import compiled, elements_a_match
from tidelog.broker.coordinator.transactions.messages import Held
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.by_topic import NamedPartitions, answers_by_topic, named_once
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION, WRITE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each
from tidelog.protocol.types import TopicPartition

_FENCED_FROM = 2
_SEVERAL_TRANSACTIONS_FROM = 4
_PARTITIONS_ABORTABLE_FROM = 5
_ABORTABLE_FROM = 4
_EPOCH_PER_TRANSACTION_FROM = 5
_STATES = {state.label: state for state in TransactionState}


class TransactionsHandler(GuardedHandler):
    """Serves AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, DescribeTransactions 0 and
    ListTransactions 0-2."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._transactions = services.transactions

    async def add_partitions_to_txn(
        self, context: RequestContext, request: types.AddPartitionsToTxnRequest
    ) -> DictOf[types.AddPartitionsToTxnResponse]:
        version = context.header.api_version
        if version < _SEVERAL_TRANSACTIONS_FROM:
            client = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            results = await self._add(
                context, request.v3_and_below_transactional_id, client, request.v3_and_below_topics
            )
            return {"results_by_topic_v3_and_below": results}
        turns = self._services.turns
        asked_of = dict(
            await turns.run(each(lambda one: (one.transactional_id, one), request.transactions, Pace()))
        )

        async def add(
            asked: types.AddPartitionsToTxnRequestTransaction,
        ) -> DictOf[types.AddPartitionsToTxnResponseResultsByTransaction]:
            client = Producer(asked.producer_id, asked.producer_epoch)
            results = await self._add(
                context, asked.transactional_id, client, asked.topics, only_verify=asked.verify_only
            )
            return {"transactional_id": asked.transactional_id, "topic_results": results}

        answers = await turns.together(add, asked_of.values(), Pace())
        return {"error_code": ErrorCode.NONE, "results_by_transaction": answers}

    async def _add(
        self,
        context: RequestContext,
        transactional_id: str,
        client: Producer,
        topics: Iterable[types.AddPartitionsToTxnRequestTopic],
        *,
        only_verify: bool = False,
    ) -> list[DictOf[types.AddPartitionsToTxnResponseTopicResult]]:
        """Add partitions to one transaction, or look whether it has them; the answer for each."""
        turns = self._services.turns
        version = context.header.api_version
        wanted = await turns.run(named_once(topics, Pace()))
        codes: dict[TopicPartition, ErrorCode] = {}
        partitions = await turns.run(self._known(context, wanted, codes))
        if only_verify:
            permits = self._transactions.permits
            for where in partitions:
                codes[where] = _verified(version, permits(transactional_id, *client, *where))
        elif codes:
            codes.update(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED))
        else:
            code = ErrorCode.NONE
            try:
                await self._transactions.add_partitions(
                    transactional_id, client, partitions, waits=version < _SEVERAL_TRANSACTIONS_FROM
                )
            except ApiError as error:
                code = _answered(version, error.code, _PARTITIONS_ABORTABLE_FROM)
            codes = dict.fromkeys(partitions, code)

        def result(name: str, index: int) -> DictOf[types.AddPartitionsToTxnResponseResultsByPartition]:
            return {"partition_index": index, "partition_error_code": codes[TopicPartition(name, index)]}

        return await turns.run(
            answers_by_topic(wanted.items(), result, Pace(), partitions="results_by_partition")
        )

    def _known(
        self, context: RequestContext, wanted: NamedPartitions, codes: dict[TopicPartition, ErrorCode]
    ) -> Steps[list[TopicPartition]]:
        """The partitions that exist and may be written to; notes the code of the others."""
        pace = Pace()
        known = []
        # From version 4 on, another broker sends it, which has checked its client.
        is_client = context.header.api_version < _SEVERAL_TRANSACTIONS_FROM
        for name, indexes in wanted.items():
            is_denied = is_client and not self._access.allows(context, WRITE_TOPIC, name)
            topic = self._services.catalog.topic(name)
            for index in indexes:
                where = TopicPartition(name, index)
                if is_denied:
                    codes[where] = WRITE_TOPIC.refusal
                elif topic is not None and topic.has_partition(index):
                    known.append(where)
                else:
                    codes[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if pace.spent():
                    yield
        return known

    async def add_offsets_to_txn(
        self, context: RequestContext, request: types.AddOffsetsToTxnRequest
    ) -> DictOf[types.AddOffsetsToTxnResponse]:
        client = Producer(request.producer_id, request.producer_epoch)
        code = ErrorCode.NONE
        try:
            await self._services.groups.make_topic()
            where = TopicPartition(OFFSETS_TOPIC, self._services.groups.partition_of(request.group_id))
            await self._transactions.add_partitions(request.transactional_id, client, [where])
        except ApiError as error:
            code = _answered(context.header.api_version, error.code, _ABORTABLE_FROM)
        return {"error_code": code}

    async def end_txn(
        self, context: RequestContext, request: types.EndTxnRequest
    ) -> DictOf[types.EndTxnResponse]:
        version = context.header.api_version
        try:
            client = await self._transactions.end(
                request.transactional_id,
                Producer(request.producer_id, request.producer_epoch),
                is_commit=request.committed,
                version=2 if version >= _EPOCH_PER_TRANSACTION_FROM else 1,
            )
        except ApiError as error:
            return {"error_code": _answered(version, error.code, _ABORTABLE_FROM)}
        return {
            "error_code": ErrorCode.NONE,
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
        }

    async def describe_transactions(
        self, context: RequestContext, request: types.DescribeTransactionsRequest
    ) -> DictOf[types.DescribeTransactionsResponse]:
        answers = []
        for transactional_id in dict.fromkeys(request.transactional_ids):
            answers.append(await self._described(context, transactional_id))
            await self._services.turns.next()
        return {"transaction_states": answers}

    async def _described(
        self, context: RequestContext, transactional_id: str
    ) -> DictOf[types.DescribeTransactionsResponseTransactionState]:
        try:
            self._access.check(context, DESCRIBE_TRANSACTION, transactional_id)
            held = await self._transactions.describe(transactional_id)
        except ApiError as error:
            return {"transactional_id": transactional_id, "error_code": error.code}
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(held.partitions):
            if self._access.shows(context, DESCRIBE_TOPIC, topic):
                topics.setdefault(topic, []).append(index)
        return {
            "error_code": ErrorCode.NONE,
            "transactional_id": transactional_id,
            "transaction_state": held.state.label,
            "transaction_timeout_ms": held.timeout_ms,
            "transaction_start_time_ms": held.start_ms,
            "producer_id": held.producer.producer_id,
            "producer_epoch": held.producer.epoch,
            "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
        }

    async def list_transactions(
        self, context: RequestContext, request: types.ListTransactionsRequest
    ) -> DictOf[types.ListTransactionsResponse]:
        """The transactional ids that the filters leave, with the state of each."""
        names = dict.fromkeys(request.state_filters)
        wanted = {_STATES[name] for name in names if name in _STATES}
        unknown = [name for name in names if name not in _STATES]
        producer_ids = set(request.producer_id_filters)
        since_ms = self._services.clock_ms() - request.duration_filter
        pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
        elements = 1 if pattern is None else elements_a_match(pattern)
        pace = Pace()
        code = ErrorCode.NONE
        answers: list[DictOf[types.ListTransactionsResponseTransactionState]] = []
        only_active = bool(names) and not any(state.is_idle for state in wanted)
        async for held in self._transactions.listed(only_active=only_active):
            if isinstance(held, ApiError):
                code = held.code
            elif (
                (not names or held.transaction.state in wanted)
                and (not producer_ids or held.transaction.producer.producer_id in producer_ids)
                and (request.duration_filter < 0 or _runs_since(held, since_ms))
                and (pattern is None or pattern.fullmatch(held.transactional_id))
                and self._access.shows(context, DESCRIBE_TRANSACTION, held.transactional_id)
            ):
                answers.append(_listed(held))
            if pace.spent(elements):
                await self._services.turns.next()
        return {"error_code": code, "unknown_state_filters": unknown, "transaction_states": answers}


def _runs_since(held: Held, before_ms: int) -> bool:
    return not held.transaction.state.is_idle and held.transaction.start_ms < before_ms


def _listed(held: Held) -> DictOf[types.ListTransactionsResponseTransactionState]:
    return {
        "transactional_id": held.transactional_id,
        "producer_id": held.transaction.producer.producer_id,
        "transaction_state": held.transaction.state.label,
    }


def _answered(version: int, code: ErrorCode, abortable_from: int) -> ErrorCode:
    """The code that clients of this version know."""
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < abortable_from:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _verified(version: int, code: ErrorCode) -> ErrorCode:
    if code == ErrorCode.INVALID_TXN_STATE and version >= _PARTITIONS_ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code
