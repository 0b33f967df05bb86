"""Producer ids of one broker, in blocks that the cluster's store reserves.

Owns the reservation that is running. Invariants: a block is committed to the cluster store before the
allocator gets it, on the newest bound of all brokers, so no two brokers get the same block, and one that
finds its block taken gets the next; it lies above every id that the logs knew at the start; a request waits
while a block is being reserved, and gets a retriable error when a reservation failed just before.

On the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from tidelog.broker.cluster.catalog import Catalog, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.coordinator import producer_ids
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.replicas.catalog_checkpoint import CatalogCheckpoint

logger = structlog.get_logger(__name__)


class ProducerIds:
    """Hands out producer ids of this broker's blocks."""

    def __init__(
        self, cluster: Cluster, clock_ms: Callable[[], int], noted: CatalogCheckpoint | None = None
    ) -> None:
        """`noted` is for a broker among others."""
        self._clock_ms = clock_ms
        self._cluster = cluster
        self._noted = noted
        self._catalog = cluster.catalog
        self._first = cluster.catalog.next_producer_id
        self._allocator = producer_ids.ProducerIdAllocator(self._first)
        self._reservation: asyncio.Task[None] | None = None

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
                advice="no producer id is assigned twice. If an older catalog was restored, topics and "
                "settings are of that time; else a client chose the id itself",
            )
        self._first = producer_ids.above_all_issued(max(self._first - 1, highest_seen))
        self._allocator = producer_ids.ProducerIdAllocator(self._first)
        self.try_next()  # Gives no id; reserves a block, because the logs may forget ids.

    def bound(self) -> int:
        """No broker ever issued an id at or above this one.

        An id that another broker issued just now may come before the news of its block.
        """
        end = max(self._catalog.next_producer_id, self._first)
        if len(self._catalog.brokers) > 1:
            return min(end + producer_ids.UNSEEN_IDS, producer_ids.MAX_PRODUCER_ID)
        return self._allocator.first_unissued(end)

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
        COORDINATOR_LOAD_IN_PROGRESS when the store failed just before."""
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
        def plan(catalog: Catalog) -> ProducerIdsReserved:
            return ProducerIdsReserved(
                producer_ids.next_block(max(catalog.next_producer_id, self._first)).end
            )

        try:
            end = (await self._cluster.change(plan)).next_producer_id
            if self._noted is not None:
                await self._noted.note_bound(end)
        except producer_ids.ProducerIdsExhausted as error:
            self._allocator.block_failed(self._clock_ms())
            logger.error("producer_ids_exhausted", error=str(error))
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except (StoreError, StoreConflict, OSError) as error:
            self._allocator.block_failed(self._clock_ms())
            logger.error(
                "producer_ids_not_reserved",
                error=str(error),
                advice="check where the catalog is stored, and the disk; producers that start now will retry",
            )
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        else:
            self._allocator.block_reserved(producer_ids.ProducerIdBlock(end - producer_ids.BLOCK_SIZE, end))
        finally:
            self._reservation = None

    async def close(self) -> None:
        """Wait until a running reservation is done, then note no more bounds."""
        if self._reservation is not None:
            await asyncio.wait([self._reservation])
        if self._noted is not None:
            await self._noted.close()
