"""Producer ids of one broker, with the cluster's store as the journal of the coordinator of id blocks.

Owns the reservation that is running. Invariants: a block is committed to the cluster store before the
allocator gets it, on the bound that the catalog shows, so no two brokers get the same block; it lies above
every id that the logs knew at the start; a request waits while a block is being reserved, and gets a
retriable error when a reservation failed just before.

On the event loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from tidelog.broker.cluster.catalog import Catalog, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.coordinator import producer_ids
from tidelog.broker.coordinator.runtime import CoordinatorRuntime
from tidelog.protocol.errors import ApiError, ErrorCode

logger = structlog.get_logger(__name__)


class _StoreJournal:
    """Blocks of producer ids in the cluster's store. Each record is the catalog's bound at some time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last_seen = 0

    async def news(self) -> Iterable[producer_ids.BlockReserved]:
        try:
            await self._cluster.settle()
        except (StoreError, OSError) as error:
            raise _store_failed(error) from error
        end = self._cluster.catalog.next_producer_id
        if end == self._last_seen:
            return ()
        self._last_seen = end
        return (producer_ids.BlockReserved(end),)

    async def write(self, records: Sequence[producer_ids.BlockReserved]) -> None:
        (record,) = records

        def plan(catalog: Catalog) -> ProducerIdsReserved:
            if catalog.next_producer_id != self._last_seen:
                message = "another broker reserved producer ids at the same moment; ask again"
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
            return ProducerIdsReserved(record.end)

        try:
            await self._cluster.change(plan)
        except (StoreError, StoreConflict, OSError) as error:
            raise _store_failed(error) from error
        self._last_seen = record.end


def _store_failed(error: Exception) -> ApiError:
    logger.error(
        "producer_ids_not_reserved",
        error=str(error),
        advice="check the disk that holds the data folder; producers that start now will retry",
    )
    return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error))


class ProducerIds:
    """Hands out producer ids of this broker's blocks."""

    def __init__(self, cluster: Cluster, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._catalog = cluster.catalog
        self._first = cluster.catalog.next_producer_id
        self._allocator = producer_ids.ProducerIdAllocator(self._first)
        self._blocks = producer_ids.ProducerIdBlocks()
        self._runtime = CoordinatorRuntime(self._blocks, _StoreJournal(cluster), clock_ms)
        self._reservation: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Replay which ids are in blocks."""
        await self._runtime.start()

    def begin_above(self, highest_seen: int, *, is_newest: bool) -> None:
        """Call before the first id: hand out no id that a producer may have, also if the store has lost it.

        `highest_seen` is the highest id in any folder. If the store is the newest that ever existed, it knows
        this id, and also the ids that were handed out and never used.
        """
        if highest_seen < self._first and is_newest:
            return
        if highest_seen >= self._first:
            logger.warning(
                "producer_ids_behind_logs",
                next_producer_id=self._first,
                highest_in_logs=highest_seen,
                advice="the catalog is older than the logs beside it; no producer id is given twice, but "
                "topics and settings are as of then",
            )
        self._first = producer_ids.above_all_issued(max(self._first - 1, highest_seen))
        self._allocator = producer_ids.ProducerIdAllocator(self._first)
        self._blocks.begin_at(self._first)
        self.try_next()  # Gives no id; reserves a block, because the logs may forget ids.

    def bound(self) -> int:
        """No broker ever issued an id at or above this one."""
        return self._allocator.first_unissued(max(self._catalog.next_producer_id, self._first))

    def try_next(self) -> int | None:
        """A fresh id, or None when the caller must wait for one."""
        allocation = self._allocator.allocate(self._clock_ms())
        if allocation.reserve_block:
            self._reservation = asyncio.get_running_loop().create_task(self._reserve())
            # No caller waits for a prefetch; its failure is logged where it happens.
            self._reservation.add_done_callback(lambda task: task.cancelled() or task.exception())
        return allocation.producer_id

    async def next(self) -> int:
        """A fresh id. Raises ApiError: UNKNOWN_SERVER_ERROR when no id is left in int64,
        COORDINATOR_LOAD_IN_PROGRESS when the store failed just before.
        """
        while True:
            producer_id = self.try_next()
            if producer_id is not None:
                return producer_id
            if self._reservation is None:
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the last attempt to reserve producer ids failed"
                )
            await asyncio.shield(self._reservation)

    async def _reserve(self) -> None:
        try:
            block = await self._runtime.run(self._blocks.reserve)
        except producer_ids.ProducerIdsExhausted as error:
            self._allocator.block_failed(self._clock_ms())
            logger.error("producer_ids_exhausted", error=str(error))
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except ApiError:
            self._allocator.block_failed(self._clock_ms())
            raise
        else:
            self._allocator.block_reserved(block)
        finally:
            self._reservation = None

    async def close(self) -> None:
        """Wait until a running reservation is done."""
        await self._runtime.close()
        if self._reservation is not None:
            await asyncio.wait([self._reservation])
