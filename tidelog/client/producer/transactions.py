"""The requests of a transactional producer, and their repetition.

Owns: the coordinators of the transactional id and of groups, and when each request of a transaction is sent.
Invariants:
- one change of the transaction is in progress at a time;
- the end of a transaction is sent only after every batch of it is settled, so no batch can come after it;
- a request is repeated until its answer is final, at most request_timeout_ms. A commit whose answer did not
  come can be repeated by another call.
For one event loop. Source: Kafka's TransactionManager; KIP-98, KIP-447, KIP-890, KIP-939.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tidelog.client.asked_apis import LAST_WITHOUT_EPOCHS, has_epoch_per_transaction
from tidelog.client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidelog.client.errors import CommitFailedError, TransactionAbortableError, TransactionAbortedError
from tidelog.client.producer.batch import Identity
from tidelog.client.producer.config import ProducerConfig
from tidelog.client.producer.sender import Sender
from tidelog.client.producer.transaction_state import (
    TRANSITIONS,
    Event,
    Meaning,
    Phase,
    Request,
    TransactionState,
    error_of,
)
from tidelog.client.retries import Retries
from tidelog.client.types import ConsumerGroupMetadata, OffsetAndMetadata, commits_by_topic
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tidelog.wire import errors
from tidelog.wire.cluster import Cluster
from tidelog.wire.connection import Connection
from tidelog.wire.events import logger

_API_KEYS: Final = {
    Request.INITIALIZE: ApiKey.INIT_PRODUCER_ID,
    Request.ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN,
    Request.ADD_OFFSETS: ApiKey.ADD_OFFSETS_TO_TXN,
    Request.COMMIT_OFFSETS: ApiKey.TXN_OFFSET_COMMIT,
    Request.END: ApiKey.END_TXN,
}
_FIRST_WITH_EXPECTED_EPOCH: Final = 3
_FIRST_WITH_TWO_PHASE_COMMIT: Final = 6
# The coordinator still completes the last transaction: that takes a few milliseconds.
_CONCURRENT_BACKOFF_MS: Final = 20
_NO_IDENTITY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_Codes = Callable[[Any], Iterable[int]]


class Transactions:
    """Runs a producer's transactions. `on_open` is called when records may be sent, `on_closed` when not."""

    def __init__(
        self,
        state: TransactionState,
        config: ProducerConfig,
        cluster: Cluster,
        sender: Sender,
        *,
        on_open: Callable[[], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.state = state
        self._timeout_ms = config.transaction_timeout_ms
        self._has_two_phase_commit = config.transaction_two_phase_commit_enable
        self._cluster = cluster
        self._sender = sender
        self._on_open = on_open
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._coordinators: dict[tuple[str, int], int] = {}
        self._lock = asyncio.Lock()
        self._add_task: asyncio.Task[None] | None = None
        sender.state.is_transactional = True
        sender.on_partitions_wanted = self._add_partitions_soon
        sender.outcomes.on_given_up = self._on_given_up

    # What the application calls

    async def initialize(self) -> None:
        """Get the epoch that fences every earlier producer of the id. Raises ClientError."""
        identity = self._sender.state.identity or _NO_IDENTITY
        values: DictOf[types.InitProducerIdRequest] = {
            "transactional_id": self.state.transactional_id,
            "transaction_timeout_ms": self._timeout_ms,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }
        if self._has_two_phase_commit:
            values["enable2_pc"] = True
        at_least = 0 if identity == _NO_IDENTITY else _FIRST_WITH_EXPECTED_EPOCH
        if self._has_two_phase_commit:
            at_least = _FIRST_WITH_TWO_PHASE_COMMIT
        connection, answer = await self._ask(Request.INITIALIZE, values, _own_code, at_least=at_least)
        self._sender.state.set_producer_id(answer.producer_id, answer.producer_epoch)
        self.state.initialized(has_epoch_per_transaction=has_epoch_per_transaction(connection.features))
        logger.info(
            "transactional_id_initialized",
            transactional_id=self.state.transactional_id,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        )

    async def begin(self) -> None:
        async with self._lock:
            self.state.begin()
            self._on_open()

    async def prepare(self) -> Identity:
        """Send everything, take no more, and return the identity by which the transaction can be ended."""
        async with self._lock:
            self.state.change(Event.PREPARE)
            self._on_closed()
            await self._sender.flush()
            self._check()
            self.state.change(Event.PREPARED)
            return self._sender.state.identity or _NO_IDENTITY

    async def commit(self) -> None:
        """Raises TransactionAbortableError if the transaction cannot be committed; RequestTimeoutError if it
        is not known yet: call it again."""
        async with self._lock:
            self.state.change(Event.COMMIT)
            self._on_closed()
            if self.state.phase is Phase.COMMITTING:
                await self._sender.flush()
                self._check()
                if self.state.needs_end:
                    self.state.change(Event.COMMIT_SENT)
            else:
                self.state.is_commit_lost = True
            if self.state.needs_end:
                await self._end(is_commit=True)
            self.state.ended()

    async def abort(self) -> None:
        """Give up every record of the transaction that is not acknowledged yet, and abort it."""
        async with self._lock:
            self.state.change(Event.ABORT)
            self._on_closed()
            self._give_up("the transaction was aborted")
            await self._sender.settle()
            if self._add_task is not None:
                # What it asks for must not come after the end, and it decides whether there is one.
                await asyncio.wait([self._add_task])
            self._check(is_abort=True)
            if self.state.needs_end:
                await self._end(is_commit=False)
            if self.state.must_initialize:
                await self.initialize()
            self.state.ended()

    async def abort_if_open(self) -> None:
        """Abort unless there is nothing to abort, it is prepared, or its commit was sent."""
        if (self.state.phase, Event.ABORT) in TRANSITIONS and self.state.phase is not Phase.PREPARED:
            await self.abort()

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Add these offsets of the group to the transaction. Raises ClientError."""
        async with self._lock:
            self.state.require_transaction()
            if not offsets:
                return
            values = self._identified({"group_id": group.group_id})
            self.state.adding()
            if not self.state.has_epoch_per_transaction:
                await self._ask(Request.ADD_OFFSETS, values, _own_code)
            topics = commits_by_topic(offsets)
            values |= {
                "generation_id": group.generation_id,
                "member_id": group.member_id,
                "group_instance_id": group.group_instance_id,
                "topics": [{"name": name, "partitions": entries} for name, entries in topics.items()],
            }
            await self._ask(Request.COMMIT_OFFSETS, values, _codes_of_offsets, (group.group_id, GROUP))

    def close(self) -> None:
        if self._add_task is not None:
            self._add_task.cancel()

    # Ends

    async def _end(self, *, is_commit: bool) -> None:
        values = self._identified({"committed": is_commit})
        try:
            _, answer = await self._ask(Request.END, values, _own_code)
        except TransactionAbortableError:
            if is_commit:
                raise
            # The coordinator has no transaction of this producer, which then has nothing to abort.
            return
        has_new_epoch = self.state.has_epoch_per_transaction and answer.producer_id != NO_PRODUCER_ID
        if has_new_epoch:
            self._sender.state.set_producer_id(answer.producer_id, answer.producer_epoch)
        self.state.decided(has_new_epoch=has_new_epoch)

    def _identified(self, values: dict[str, object]) -> dict[str, object]:
        identity = self._sender.state.identity or _NO_IDENTITY
        own = {"transactional_id": self.state.transactional_id, "producer_id": identity.producer_id}
        return {**own, "producer_epoch": identity.epoch, **values}

    def _check(self, *, is_abort: bool = False) -> None:
        """Raises the producer's fatal error, or that the transaction failed."""
        fatal = self._sender.outcomes.fatal_error
        if fatal is not None:
            self.state.fail_for_good(fatal)
            raise fatal.with_traceback(None)
        if not is_abort and self.state.phase is Phase.ABORTABLE_ERROR:
            self.state.change(Event.COMMIT)

    # Failures

    def _on_given_up(self, error: errors.ClientError) -> None:
        was_failed = self.state.phase in (Phase.ABORTABLE_ERROR, Phase.ABORTING)
        self.state.fail(error)
        if not was_failed and self.state.phase is Phase.ABORTABLE_ERROR:
            self._on_closed()
            # Later: the batch's verdict is still being executed.
            self._loop.call_soon(self._give_up, f"the transaction failed ({error.message})")

    def _give_up(self, reason: str) -> None:
        if self.state.phase in (Phase.ABORTABLE_ERROR, Phase.ABORTING):
            self._sender.outcomes.abort_all(TransactionAbortedError(reason))

    def _fail(self, request: Request, code: ErrorCode) -> errors.ClientError:
        """The coordinator refused permanently: returns the error to raise."""
        error = error_of(request, code, self.state.transactional_id)
        is_undecided = request is Request.END and self.state.is_commit_lost
        if is_undecided:
            error.message = f"it is not known whether the transaction was committed: {error.message}"
        if self.state.meaning(request, code) is Meaning.ABORTABLE and not is_undecided:
            if request is Request.COMMIT_OFFSETS and not isinstance(error, errors.AuthorizationError):
                error = CommitFailedError(error.message)
            was_open = self.state.phase is Phase.IN_TRANSACTION
            self.state.fail(error, code)
            if was_open:
                self._on_closed()
                self._give_up(f"the transaction failed ({error.message})")
            failed = TransactionAbortableError(f"the transaction failed ({error.message})")
            failed.__cause__ = error
            return failed
        if self.state.phase is not Phase.UNINITIALIZED:
            self.state.fail_for_good(error)
            self._on_closed()
            self._sender.outcomes.fail(error)
        return error

    # Partitions, where brokers do not add them by themselves

    def _add_partitions_soon(self) -> None:
        if self._add_task is None:
            self._add_task = self._loop.create_task(self._add_partitions())

    async def _add_partitions(self) -> None:
        try:
            while keys := self.state.to_add:
                topics: dict[str, list[int]] = {}
                for key in keys:
                    topics.setdefault(key.topic, []).append(key.partition)
                named = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
                own = self._identified({"topics": named})
                values = {f"v3_and_below_{name}": value for name, value in own.items()}
                await self._ask(Request.ADD_PARTITIONS, values, _codes_of_partitions)
                self.state.added(keys)
                self._sender.wake()
        except errors.ClientError as error:
            # It may have arrived.
            self.state.adding()
            self._on_given_up(error)
        except Exception as error:
            self._sender.failed(error)
        finally:
            self._add_task = None
            self._sender.wake()

    # Requests

    async def _ask(
        self,
        request: Request,
        values: Mapping[str, object],
        codes: _Codes,
        coordinator: tuple[str, int] | None = None,
        at_least: int = 0,
    ) -> tuple[Connection, Any]:
        """Repeat until the answer is final; returns it if it is a success. Raises ClientError."""
        of = coordinator or (self.state.transactional_id, TRANSACTION)
        retries = Retries(self._cluster.config)
        while True:
            try:
                connection, answer = await self._ask_once(request, values, of, at_least)
                code = _final(error_code(each) for each in codes(answer))
                meaning = self.state.meaning(request, code)
                if meaning is Meaning.DONE:
                    return connection, answer
                if meaning is not Meaning.RETRY:
                    raise self._fail(request, code)
                trouble: errors.ClientError = errors.broker_error(code, request.value)
            except errors.ClientError as error:
                if not error.retriable:
                    raise
                code, trouble = ErrorCode.NONE, error
                is_end = request is Request.END and isinstance(error, errors.ConnectionLostError)
                self.state.is_commit_lost |= is_end and self.state.phase is Phase.COMMIT_SENT
            is_concurrent = code is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_concurrent:
                self._coordinators.pop(of, None)
            what = f"{request.value} of {self.state.transactional_id!r} has no final answer"
            await retries.wait(trouble, what, _CONCURRENT_BACKOFF_MS if is_concurrent else None)

    async def _ask_once(
        self, request: Request, values: Mapping[str, object], of: tuple[str, int], at_least: int
    ) -> tuple[Connection, Any]:
        node_id = self._coordinators.get(of)
        if node_id is None:
            try:
                node_id = self._coordinators[of] = await find_coordinator(self._cluster, *of)
            except errors.BrokerError as error:
                if error.retriable:
                    raise
                raise self._fail(Request.FIND_COORDINATOR, error.code) from error
        connection = await self._cluster.connected(node_id)
        api_key = _API_KEYS[request]
        at_most = None if self.state.has_epoch_per_transaction else LAST_WITHOUT_EPOCHS.get(api_key)
        version = connection.version(api_key, at_least, at_most)
        return connection, await connection.call(api_key, values, version=version)


def _final(codes: Iterable[ErrorCode]) -> ErrorCode:
    """The code that decides: one that no retry changes, else one that a retry may change, else NONE."""
    found = set(codes) - {ErrorCode.NONE}
    if found != {ErrorCode.OPERATION_NOT_ATTEMPTED}:
        found.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return min(found, key=lambda code: (code.retriable, code), default=ErrorCode.NONE)


def _own_code(answer: Any) -> Iterable[int]:
    return (answer.error_code,)


def _codes_of_partitions(answer: "types.AddPartitionsToTxnResponse") -> Iterable[int]:
    return (
        each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    )


def _codes_of_offsets(answer: "types.TxnOffsetCommitResponse") -> Iterable[int]:
    return (each.error_code for topic in answer.topics for each in topic.partitions)
