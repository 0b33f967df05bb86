"""The coordinator of transactions: a machine of transactions over each partition of `__transaction_state`.

Owns what happens to transactions without a request: markers of what was decided, timeouts, ids that expire.

Invariants:
- a marker is written only after the decision is durable, and a transaction is complete only after all its
  markers are; what a crash interrupted is continued when its partition is replayed;
- a request that began has its whole effect, even if its client disconnects;
- a request that finds the markers of the transaction before it not written yet waits for them, up to
  `ENDING_WAIT_SECONDS`, before its client is asked to try again;

On the event loop. Source: Kafka's TransactionCoordinator and TransactionStateManager.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from functools import partial
from heapq import nsmallest
from typing import Any, TypeVar

import structlog

from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator import shards
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.producer_id_manager import ProducerIds
from tidelog.broker.coordinator.remote_transactions import RemoteTransactions
from tidelog.broker.coordinator.transaction_markers import TransactionMarkers
from tidelog.broker.coordinator.transactions import messages
from tidelog.broker.coordinator.transactions.machine import Transactions
from tidelog.broker.coordinator.transactions.records import TRANSACTION_RECORD_FORMATS, TransactionRecord
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import NO_PRODUCER, Producer, Transaction
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.observability.metrics import TransactionCounts
from tidelog.broker.tasks import Tasks, kept
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.steps import Pace
from tidelog.protocol.types import TopicPartition

ENDING_WAIT_SECONDS = 0.1
MARKERS_RETRY_SECONDS = 1.0
MOST_AGES = 100
"""Prepared transactions that metrics name: the oldest."""
_ADVICE = (
    "check the disk that holds the data folder; `tidelog log verify` shows what is damaged. Until it can be "
    "read, transactional ids of this partition cannot be used"
)
logger = structlog.get_logger(__name__)
_ResultT = TypeVar("_ResultT")
_Shard = shards.Shard[Transactions]


class TransactionCoordinator(shards.Coordinator[Transactions]):
    """Coordinates the transactions of one broker."""

    def __init__(
        self,
        parts: shards.CoordinatorParts,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        remote: RemoteTransactions,
        events: PeerEvents,
    ) -> None:
        settings = parts.settings
        self._producer_ids = producer_ids
        self._steady_ms = parts.steady_ms
        self._events = events
        kind = shards.ShardKind(
            TRANSACTIONS_TOPIC,
            TRANSACTION_RECORD_FORMATS,
            lambda: Transactions(_limits_of(settings.config)),
            self._begin,
            ErrorCode.INVALID_REQUEST,
            _ADVICE,
            _is_complete,
            _may_grow,
        )
        super().__init__(kind, parts)
        self._markers = TransactionMarkers(parts, groups, remote)
        self._endings: dict[tuple[_Shard, str], asyncio.Task[None]] = {}
        self._sweeping = Tasks()
        self._is_closing = False
        settings.when_changed(self._settings_changed)

    def _settings_changed(self) -> None:
        for machine in self._shards.machines():
            machine.limits = _limits_of(self._settings.config)

    def start(self) -> None:
        """Begin to replay the existing partitions, and to look for timeouts."""
        self._shards.start()
        self._sweeping.begin(kept(self._sweep_repeatedly))

    async def _begin(self, shard: _Shard) -> None:
        """Continue what was decided before the restart."""
        shard.machine.confirm_replayed(self._steady_ms())
        for transactional_id in shard.machine.active_ids():
            self._finish(shard, transactional_id)

    async def initialize(self, asked: messages.Initialization) -> messages.Initialized:
        """Give a transactional id to a client. Raises ApiError, as of `Transactions.initialize`."""
        shard = self._shards.of(asked.transactional_id)
        name = asked.transactional_id

        async def attempt() -> messages.Initialized:
            answer: messages.Initialized | None = await self._with_producer_id(
                shard, partial(shard.machine.initialize, asked)
            )
            if answer is None:
                self._finish(shard, name)
                raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return answer

        return await self._to_its_end(self._after_ending(shard, name, attempt))

    async def add_partitions(
        self,
        transactional_id: str,
        client: Producer,
        partitions: Iterable[TopicPartition],
        *,
        waits: bool = True,
    ) -> None:
        """Let partitions take part in the client's transaction. Raises ApiError.

        Another broker asks without `waits`, because others wait for the same answer."""
        shard = self._shards.of(transactional_id)
        wanted = frozenset(partitions)

        async def attempt() -> None:
            await shard.run(shard.machine.add_partitions(transactional_id, client, wanted))
            shard.machine.confirm(transactional_id, client, wanted)

        try:
            await self._to_its_end(
                self._after_ending(shard, transactional_id, attempt) if waits else attempt()
            )
        except ApiError as error:
            if error.code == ErrorCode.TRANSACTION_ABORTABLE:  # Few responses have a field for the reason.
                self._events.warning(
                    "transaction_refused", "", transactional_id=transactional_id, reason=error.message
                )
            raise

    async def end(
        self, transactional_id: str, client: Producer, *, is_commit: bool, version: int
    ) -> Producer:
        """Commit or abort; returns once that is decided, with the pair that the client has from now on.

        Raises ApiError.
        """
        shard = self._shards.of(transactional_id)

        async def ended() -> Producer:
            answer: Producer = await self._with_producer_id(
                shard,
                lambda fresh: shard.machine.end(
                    transactional_id, client, is_commit=is_commit, version=version, fresh_producer_id=fresh
                ),
            )
            self._finish(shard, transactional_id)
            return answer

        return await self._to_its_end(self._after_ending(shard, transactional_id, ended))

    def permits(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        """NONE if the partition takes part in the ongoing transaction of just this producer and epoch.

        INVALID_TXN_STATE if it does not. Any other code is the reason why the coordinator cannot say, or why
        this producer has no transaction: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS. It awaits nothing,
        because batches are appended in the order of arrival. Source: KIP-890, part 1.
        """
        try:
            shard = self._shards.of(transactional_id)
        except ApiError as error:
            return error.code
        if shard.failure is not None:
            return shard.failure.code
        if not shard.is_loaded:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        client = Producer(producer_id, producer_epoch)
        return shard.machine.permits(transactional_id, client, TopicPartition(topic, partition))

    async def describe(self, transactional_id: str) -> Transaction:
        """Raises ApiError: TRANSACTIONAL_ID_NOT_FOUND, or why the coordinator cannot say."""
        found = await self.read(transactional_id, lambda machine: machine.describe(transactional_id))
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    async def listed(self, *, only_active: bool) -> AsyncIterator[messages.Held | ApiError]:
        """All transactional ids of this broker, or those with a transaction, and the error of each partition
        that cannot list its ids."""

        def ids_of(machine: Transactions) -> set[str]:
            return {*(machine.active_ids() if only_active else machine.ids()), *machine.uncommitted_ids()}

        async for held in self._listed(ids_of, Transactions.listed):
            if isinstance(held, ApiError) or not (only_active and held.transaction.state.is_idle):
                yield held

    def now_ms(self) -> int:
        """The time by which transactions begin and time out."""
        return self._steady_ms()

    def counts(self) -> TransactionCounts:
        """The transactions that are not complete."""
        active = [
            (name, held)
            for shard in self._shards.loaded()
            for name in shard.machine.active_ids()
            if (held := shard.machine.get(name)) is not None
        ]
        prepared = [(held.start_ms, name) for name, held in active if held.is_prepared]
        now_ms = self._steady_ms()
        ages = {name: (now_ms - start_ms) / 1000 for start_ms, name in nsmallest(MOST_AGES, prepared)}
        return TransactionCounts(Counter(held.state.label for _, held in active), ages)

    async def _with_producer_id(self, shard: _Shard, operation: Callable[[int | None], Any]) -> Any:
        """Run an operation that may need a producer id that was never used."""
        try:
            return await shard.run(operation(None))
        except messages.ProducerIdNeeded:
            return await shard.run(operation(await self._producer_ids.next()))

    async def _after_ending(
        self, shard: _Shard, transactional_id: str, attempt: Callable[[], Awaitable[_ResultT]]
    ) -> _ResultT:
        """`attempt`, and once more if the markers of the transaction before it were written meanwhile."""
        try:
            return await attempt()
        except ApiError as error:
            ending = self._endings.get((shard, transactional_id))
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS or ending is None:
                raise
            await asyncio.wait([ending], timeout=ENDING_WAIT_SECONDS)
            return await attempt()

    async def _to_its_end(self, work: Coroutine[Any, Any, _ResultT]) -> _ResultT:
        """Run `work` to its end, even if the caller is cancelled."""
        return await asyncio.shield(self._tasks.task(work, is_awaited=True))

    def _finish(self, shard: _Shard, transactional_id: str) -> None:
        """Begin to write the markers of a transaction that is decided, unless that has begun."""
        held = shard.machine.get(transactional_id)
        if (
            held is None
            or not held.state.is_decided
            or (shard, transactional_id) in self._endings
            or self._is_closing
        ):
            return
        task = self._tasks.task(self._write_markers(shard, transactional_id), is_awaited=True)
        self._endings[shard, transactional_id] = task
        task.add_done_callback(partial(self._ended, shard, transactional_id))

    def _ended(self, shard: _Shard, transactional_id: str, task: asyncio.Task[None]) -> None:
        del self._endings[shard, transactional_id]
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, ApiError):
            logger.error(
                "transaction_markers_broken",
                transactional_id=transactional_id,
                exc_info=error,
                advice="the broker tries again at the next check",
            )

    async def _write_markers(self, shard: _Shard, transactional_id: str) -> None:
        """Write the markers of a decided transaction, and complete it. Ends early where another coordinator
        has taken over, and with the broker."""
        held: Transaction | None = await shard.run(
            lambda _: Decision((), shard.machine.get(transactional_id))
        )
        if held is None or not held.state.is_decided:
            return
        marker = TransactionMarker(
            *held.producer, shard.replica.leader_epoch, held.is_commit, held.client_version
        )
        lacking: Iterable[TopicPartition] = held.partitions
        while failed := await self._markers.write(marker, lacking):
            if shard.is_closed:
                return
            where, error = next(iter(failed.items()))
            self._events.warning(
                "transaction_markers_not_written",
                "",
                transactional_id=transactional_id,
                partitions=len(failed),
                topic=where.topic,
                partition=where.partition,
                error=str(error),
                advice="check the broker that leads this partition, and its disk; they are tried again until "
                "then",
            )
            lacking = failed
            await asyncio.sleep(MARKERS_RETRY_SECONDS)
        await self._complete(shard, transactional_id, held.producer)

    async def _complete(self, shard: _Shard, transactional_id: str, markers: Producer) -> None:
        """Complete a transaction; returns once that is decided, and does not wait for the disk."""
        operation = shard.machine.complete(transactional_id, markers)
        decided = asyncio.get_running_loop().create_future()

        def completing(now_ms: int) -> Any:
            decided.set_result(None)
            return operation(now_ms)

        task = self._tasks.task(shard.run(completing), is_awaited=True)
        await asyncio.wait([task, decided], return_when=asyncio.FIRST_COMPLETED)

    async def _sweep_repeatedly(self) -> None:
        config = self._settings.config
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        next_expiry_ms = self._steady_ms() + expiry_ms
        while True:
            await asyncio.sleep(min(interval_ms, expiry_ms) / 1000)
            await self._sweep(self._abort_timed_out)
            if self._steady_ms() >= next_expiry_ms:
                next_expiry_ms = self._steady_ms() + expiry_ms
                await self._sweep(_forget_idle)

    async def _sweep(self, part: Callable[[_Shard], Awaitable[None]]) -> None:
        # Transactions end also if no client asks: a partition that failed, or is led again, is replayed.
        self._shards.start()
        advice = "the broker tries again at the next check"
        await self._shards.for_each(part, "transactions_not_swept", advice)

    async def _abort_timed_out(self, shard: _Shard) -> None:
        """One by one: the records of many transactions might not fit into one batch. Raises ApiError for the
        first one that cannot be aborted, after all others."""
        pace = Pace()
        refused: ApiError | None = None
        for transactional_id in list(shard.machine.active_ids()):
            held = shard.machine.get(transactional_id)
            if held is not None and held.is_timed_out(self._steady_ms()):
                try:
                    await shard.run(partial(shard.machine.abort_timed_out, [transactional_id]))
                except ApiError as error:
                    refused = refused or ApiError(error.code, f"{transactional_id}: {error.message}")
                    continue
                logger.info("transaction_timed_out", transactional_id=transactional_id)
            self._finish(shard, transactional_id)
            if pace.spent():
                await asyncio.sleep(0)
        if refused is not None:
            raise again(refused)

    async def close(self) -> None:
        """Wait until the requests that began are done; markers that are not written yet are at the next
        start."""
        self._is_closing = True
        for ending in self._endings.values():
            ending.cancel()
        await self._sweeping.cancel()
        await self._tasks.ended()
        await self._shards.close()


def _is_complete(record: TransactionRecord) -> bool:
    held = record.transaction
    return held is not None and held.state.is_idle and held.state is not TransactionState.EMPTY


def _may_grow(record: TransactionRecord) -> bool:
    """Whether the transaction takes partitions. It can still be kept, and must be ended: both add numbers."""
    held = record.transaction
    return held is not None and held.state is TransactionState.ONGOING and held.following == NO_PRODUCER


def _limits_of(config: BrokerConfig) -> messages.TransactionLimits:
    return messages.TransactionLimits(
        config.transaction_max_timeout_ms,
        config.transactional_id_expiration_ms,
        config.transactions_max_bytes,
    )


async def _forget_idle(shard: _Shard) -> None:
    for some in shards.some_at_once(list(shard.machine.ids())):
        await shard.run(partial(shard.machine.forget_idle, some))
