"""InitProducerId and DescribeProducers: new producer ids, and what each partition remembers of producers.

Invariants: without a transactional id the answer is always a fresh id at epoch 0, whatever id and epoch the
request names; a request that finds no id left waits for the next block and is not refused; more than
`DESCRIBED_ON_THE_LOOP` producers are described in a thread, and a partition that is named twice is described
once.

Versions: InitProducerId names the producer that it replaces from 3 on, says PRODUCER_FENCED from 4 on, and
has two-phase commit from 6 on. Source: KIP-98, KIP-360, KIP-664, KIP-939 (two-phase commit).
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Iterable, Iterator
from functools import partial

from tidelog.broker.coordinator.producer_ids import check_init_producer_id
from tidelog.broker.coordinator.transactions.messages import Initialization
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.by_topic import answers_by_topic, named_once
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import (
    IDEMPOTENT_WRITE,
    READ_TOPIC,
    TWO_PHASE_COMMIT,
    WRITE_TOPIC,
)
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_table import ProducerEntry, entries_of
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FENCED_FROM = 4


class ProducersHandler(GuardedHandler):
    """Serves InitProducerId 0-6 and DescribeProducers 0."""

    def init_producer_id(
        self, context: RequestContext, request: types.InitProducerIdRequest
    ) -> DictOf[types.InitProducerIdResponse] | Awaitable[DictOf[types.InitProducerIdResponse]]:
        try:
            if request.transactional_id is None:
                self._check_may_produce(context)
            check_init_producer_id(request.transactional_id, request.producer_id, request.producer_epoch)
            if request.transactional_id is not None:
                self._check_two_phase_commit(context, request, request.transactional_id)
                return self._initialized(context, request, request.transactional_id)
        except ApiError as error:
            return self._refused(context, request, error)
        producer_id = self._services.producer_ids.try_next()
        if producer_id is not None:
            return _fresh(producer_id)
        return self._wait_for_one()

    def _check_may_produce(self, context: RequestContext) -> None:
        """Raise ApiError for a client that may write nowhere (KIP-679)."""
        if not self._access.shows(context, IDEMPOTENT_WRITE, CLUSTER_NAME) and not self._access.allows_any(
            context, WRITE_TOPIC
        ):
            raise ApiError(IDEMPOTENT_WRITE.refusal)

    def _check_two_phase_commit(
        self, context: RequestContext, request: types.InitProducerIdRequest, transactional_id: str
    ) -> None:
        """Raise ApiError unless this transactional id may do what the request asks for (KIP-939)."""
        config = self._services.config
        if not request.enable2_pc and not request.keep_prepared_txn:
            return
        self._access.check(context, TWO_PHASE_COMMIT, transactional_id)
        if not config.transaction_two_phase_commit_enable:
            problem = "two-phase commit is off: set transaction.two.phase.commit.enable=true"
        elif not _is_allowed(transactional_id, config.transaction_two_phase_commit_allowed_ids):
            problem = "transaction.two.phase.commit.allowed.ids does not name this transactional id"
        else:
            return
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem)

    async def _initialized(
        self, context: RequestContext, request: types.InitProducerIdRequest, transactional_id: str
    ) -> DictOf[types.InitProducerIdResponse]:
        asked = Initialization(
            transactional_id,
            request.transaction_timeout_ms,
            Producer(request.producer_id, request.producer_epoch),
            has_two_phase_commit=request.enable2_pc,
            keeps_prepared=request.keep_prepared_txn,
        )
        try:
            given = await self._services.transactions.initialize(asked)
        except ApiError as error:
            if error.code == ErrorCode.CONCURRENT_TRANSACTIONS:  # Its client asks again.
                return _no_producer_id(error.code)
            return self._refused(context, request, error)
        return {
            "error_code": ErrorCode.NONE,
            "producer_id": given.client.producer_id,
            "producer_epoch": given.client.epoch,
            "ongoing_txn_producer_id": given.kept.producer_id,
            "ongoing_txn_producer_epoch": given.kept.epoch,
        }

    def _refused(
        self, context: RequestContext, request: types.InitProducerIdRequest, error: ApiError
    ) -> DictOf[types.InitProducerIdResponse]:
        """The response has no field for a message, so it is logged for the operator."""
        self._services.events.warning(
            "init_producer_id_refused",
            context.connection.client_host,
            client_id=context.header.client_id,
            client_host=context.connection.client_host,
            transactional_id=request.transactional_id,
            error=error.code.name,
            reason=error.message,
        )
        if error.code == ErrorCode.PRODUCER_FENCED and context.header.api_version < _FENCED_FROM:
            return _no_producer_id(ErrorCode.INVALID_PRODUCER_EPOCH)
        return _no_producer_id(error.code)

    async def _wait_for_one(self) -> DictOf[types.InitProducerIdResponse]:
        try:
            return _fresh(await self._services.producer_ids.next())
        except ApiError as error:
            return _no_producer_id(error.code)

    def describe_producers(
        self, context: RequestContext, request: types.DescribeProducersRequest
    ) -> Steps[DictOf[types.DescribeProducersResponse]]:
        """Every live producer of the partitions asked for, as the partition's leader knows it."""
        pace = Pace()
        wanted = yield from named_once(request.topics, pace, partitions="partition_indexes")
        describe = partial(self._describe, context)
        return {"topics": (yield from answers_by_topic(wanted.items(), describe, pace))}

    def _describe(
        self, context: RequestContext, topic: str, index: int
    ) -> DictOf[types.DescribeProducersResponsePartition]:
        """One partition; its producers are frozen until they are encoded."""
        try:
            self._access.check(context, READ_TOPIC, topic)
            producers = self._services.replica(topic, index).log.producers
        except ApiError as error:
            return {"partition_index": index, "error_code": error.code, "error_message": error.message}
        described = _Frozen(producers)
        return {"partition_index": index, "error_code": ErrorCode.NONE, "active_producers": described}


def _is_allowed(transactional_id: str, patterns: Iterable[str]) -> bool:
    return any(
        transactional_id.startswith(pattern[:-1]) if pattern.endswith("*") else transactional_id == pattern
        for pattern in patterns
    )


class _Frozen(list["DictOf[types.DescribeProducersResponseActiveProducer]"]):
    """The producers of a table as a list for an encoder, made one by one while it encodes.

    The table is frozen as long as the list is referred to: until its answer is encoded or dropped.
    """

    def __init__(self, producers: ProducerStates) -> None:
        super().__init__()
        self._frozen = producers.freeze()
        weakref.finalize(self, producers.thaw)

    def __len__(self) -> int:
        return self._frozen.count

    def __iter__(self) -> Iterator[DictOf[types.DescribeProducersResponseActiveProducer]]:
        return map(producer_facts, entries_of(self._frozen))


def producer_facts(entry: ProducerEntry) -> DictOf[types.DescribeProducersResponseActiveProducer]:
    """What DescribeProducers shows of a producer on a partition, by Kafka's field names."""
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.current_txn_start_offset,
    }


def _fresh(producer_id: int) -> DictOf[types.InitProducerIdResponse]:
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _no_producer_id(code: ErrorCode) -> DictOf[types.InitProducerIdResponse]:
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}
