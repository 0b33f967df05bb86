"""What a broker does by the clock: checkpoints, retention, expiry of idle producers.

Owns the timers. Each job may also be called directly. Invariants: a job that fails is logged and comes
again at its next time; no two pieces of disk work run at once; the loop is not held longer than one log's
share of a job.

Built and stopped by `broker.services`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker.partitions import Partitions

CHECKPOINT_INTERVAL_MS = 60_000
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
logger = structlog.get_logger(__name__)


class Maintenance:
    """The periodic work on a broker's logs."""

    def __init__(
        self, partitions: Partitions, clock_ms: Callable[[], int], *, retention_check_interval_ms: int
    ) -> None:
        self._partitions = partitions
        self._clock_ms = clock_ms
        self._jobs: tuple[tuple[str, int, Callable[[], Awaitable[None]]], ...] = (
            ("checkpoint", CHECKPOINT_INTERVAL_MS, self.checkpoint),
            ("retention", retention_check_interval_ms, self.apply_retention),
            ("producer_expiry", PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to run every job by its interval."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._repeat(name, interval_ms, job)) for name, interval_ms, job in self._jobs
        ]

    async def stop(self) -> None:
        """End the timers; a piece of disk work that is under way is waited for by the next one to come."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(self, name: str, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                # Shielded: a stop must not leave a checkpoint begun and never finished.
                await asyncio.shield(asyncio.ensure_future(job()))
            except Exception as error:
                logger.error(
                    "maintenance_failed", job=name, error=str(error), advice="it will be tried again"
                )

    async def checkpoint(self) -> None:
        """Make indexes and snapshots durable, so that a start after a crash has little to read."""
        logs = self._partitions.logs
        async with self._partitions.disk_work:
            checkpoint = logs.begin_checkpoint()
            await asyncio.to_thread(checkpoint.run)
            logs.finish_checkpoint(checkpoint)
            await asyncio.to_thread(logs.write_checkpoints)
            await asyncio.to_thread(logs.purge)

    async def apply_retention(self) -> None:
        """Let go of segments that are too old or too many, then unlink their files."""
        logs = self._partitions.logs
        async with self._partitions.disk_work:
            logs.run_retention(self._clock_ms())
            await asyncio.to_thread(logs.write_checkpoints)
            await asyncio.to_thread(logs.purge)

    async def expire_producers(self) -> None:
        """Forget idle producers, some thousands a step, so that a million at once do not stop the loop."""
        expired = 0
        while count := self._partitions.logs.expire_producers(self._clock_ms()):
            expired += count
            await asyncio.sleep(0)
        if expired:
            logger.info("producer_ids_expired", count=expired)
