"""Producer ids with a store behind them: the waiting that the pure allocator leaves to its shell.

Owns the reservation that is under way. Invariants: a block is committed to the cluster store before the
allocator hears of it, and lies above every id that the logs knew at the start; a request waits for a block
that is on its way and is sent away with a retriable code when reserving failed just now.

Called by `handlers.producers` and by each partition's log (for the bound), on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tidelog.broker.cluster.catalog import Catalog, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import StoreConflict, StoreError
from tidelog.broker.coordinator.producer_ids import (
    BLOCK_SIZE,
    ProducerIdAllocator,
    ProducerIdBlock,
    ProducerIdsExhausted,
    above_all_issued,
    next_block,
)
from tidelog.protocol.errors import ApiError, ErrorCode

logger = structlog.get_logger(__name__)


class ProducerIds:
    """Hands out this cluster's producer ids."""

    def __init__(self, cluster: Cluster, clock_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._first = cluster.catalog.next_producer_id
        self._allocator = ProducerIdAllocator(self._first)
        self._reservation: asyncio.Task[None] | None = None

    def begin_above(self, highest_seen: int, *, is_newest: bool) -> None:
        """Before the first id: hand out none that anybody may have, where the store may have forgotten it.

        `highest_seen` is the highest in any folder. A store that is the newest there ever was knows of it,
        and of those that were handed out and never used.
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
        self._first = above_all_issued(max(self._first - 1, highest_seen))
        self._allocator = ProducerIdAllocator(self._first)
        self.try_next()  # Gives none yet, and has a block reserved, for the logs may forget whom they saw.

    def bound(self) -> int:
        """Ids at or above it were never issued."""
        return self._allocator.next_producer_id

    def try_next(self) -> int | None:
        """A fresh id, or None when one must be waited for."""
        allocation = self._allocator.allocate(self._clock_ms())
        if allocation.reserve_block:
            self._reservation = asyncio.get_running_loop().create_task(self._reserve())
            # A prefetch has no one who waits for it; its failure is logged where it happens.
            self._reservation.add_done_callback(lambda task: task.cancelled() or task.exception())
        return allocation.producer_id

    async def next(self) -> int:
        """A fresh id. Raises ApiError: UNKNOWN_SERVER_ERROR when no id is left in int64,
        COORDINATOR_LOAD_IN_PROGRESS when the store failed just now.
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
        def plan(catalog: Catalog) -> ProducerIdsReserved:
            return ProducerIdsReserved(next_block(max(catalog.next_producer_id, self._first)).end)

        try:
            reserved = await self._cluster.change(plan)
        except ProducerIdsExhausted as error:
            self._allocator.block_failed(self._clock_ms())
            logger.error("producer_ids_exhausted", error=str(error))
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except (StoreError, StoreConflict, OSError) as error:
            self._allocator.block_failed(self._clock_ms())
            logger.error(
                "producer_ids_not_reserved",
                error=str(error),
                advice="check the disk that holds the data folder; producers that start now will retry",
            )
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        else:
            end = reserved.next_producer_id
            self._allocator.block_reserved(ProducerIdBlock(end - BLOCK_SIZE, end))
        finally:
            self._reservation = None

    async def close(self) -> None:
        """Let a reservation that is under way finish."""
        if self._reservation is not None:
            await asyncio.wait([self._reservation])
