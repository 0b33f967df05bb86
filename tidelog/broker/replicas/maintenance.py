"""What a broker does by the clock: checkpoints, retention, expiry of idle producers.

Owns the timers. Invariants: a job that fails is logged and runs again at its next time; no two pieces of disk
work run at once; the loop is not blocked for longer than one log's share of a job.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.storage.disk import advice_on
from tidelog.broker.storage.manager import OldRecords
from tidelog.broker.tasks import Tasks, is_set_within

CHECKPOINT_BYTES = 128 << 20
CHECKPOINT_BYTES_INTERVAL_MS = 1_000
"""How often to look for a log that has more to read after a crash than CHECKPOINT_BYTES."""
PRODUCER_EXPIRY_INTERVAL_MS = 600_000
OPEN_AGAIN_INTERVAL_MS = 5_000
_OLD_ADVICE = (
    "retention counts from a record's timestamp, and these were older than retention.ms when they were "
    "written; to keep such records, set retention.ms=-1, or message.timestamp.type=LogAppendTime, before "
    "they are written again (`tidelog topic alter TOPIC --config retention.ms=-1`)"
)
logger = structlog.get_logger(__name__)


class Maintenance:
    """The periodic work on a broker's logs."""

    def __init__(
        self,
        partitions: Partitions,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        config: BrokerConfig,
        events: PeerEvents,
        open_again: Callable[[], None],
    ) -> None:
        """`open_again` opens the logs for which space or file handles were lacking."""
        self._partitions = partitions
        self._events = events
        self._open_lacking = open_again
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self._jobs: tuple[tuple[str, int, Callable[[], Awaitable[None]]], ...] = (
            ("checkpoint", config.log_flush_offset_checkpoint_interval_ms, self.checkpoint),
            ("checkpoint_bytes", CHECKPOINT_BYTES_INTERVAL_MS, self.checkpoint_long_tails),
            ("retention", config.log_retention_check_interval_ms, self.apply_retention),
            ("open_again", OPEN_AGAIN_INTERVAL_MS, self._open_again),
            ("producer_expiry", PRODUCER_EXPIRY_INTERVAL_MS, self.expire_producers),
        )
        self._tasks = Tasks()
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Begin to run every job by its interval."""
        for each in self._jobs:
            self._tasks.begin(self._repeat(*each))

    async def stop(self) -> None:
        """End the timers. A running job skips the logs that it has not reached."""
        self._stopping.set()
        await self._tasks.ended()

    async def _repeat(self, name: str, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        while not await is_set_within(self._stopping, interval_ms / 1000):
            try:
                await job()
            except Exception as error:
                advice = advice_on(error, "the broker tries again")
                logger.error("maintenance_failed", job=name, error=str(error), advice=advice)

    async def checkpoint(self, at_least_bytes: int = 0) -> None:
        """Make indexes and snapshots durable, so that a start after a crash has little to read.

        `at_least_bytes`: only of logs that grew by this much since their last checkpoint.
        """
        async with self._partitions.disk_work:
            if await self._checkpoint(at_least_bytes):
                # The disk was full: the deleted files freed space for the snapshots that failed.
                await self._checkpoint(at_least_bytes)

    async def _checkpoint(self, at_least_bytes: int) -> bool:
        """Returns whether one failed although files were deleted."""
        logs = self._partitions.logs
        failed = False
        for log in list(logs.logs.values()):
            if self._stopping.is_set():
                return False
            if log.bytes_since_checkpoint < at_least_bytes:
                continue
            failed |= not await self._partitions.checkpoint(log)
            for _ in logs.drop_segments(log):
                await asyncio.sleep(0)
        # First delete files to free space: on a full disk nothing can be written before.
        gone = await asyncio.to_thread(logs.purge)
        await asyncio.to_thread(logs.write_checkpoints)
        return gone > 0 and failed

    async def checkpoint_long_tails(self) -> None:
        """Checkpoint the logs that grow fast more often than the others."""
        logs = list(self._partitions.logs.logs.values())  # A copy: a thread may add logs.
        if any(log.bytes_since_checkpoint >= CHECKPOINT_BYTES for log in logs):
            await self.checkpoint(CHECKPOINT_BYTES)

    async def apply_retention(self) -> None:
        """Delete segments that are too old or too many, then unlink their files."""
        logs = self._partitions.logs
        async with self._partitions.disk_work:
            # A changed clock must not make records old: the earlier of the two clocks decides.
            now_ms = min(self._clock_ms(), self._steady_ms())
            self._partitions.note_committed()
            await asyncio.to_thread(logs.look_up_ages, now_ms)
            old: dict[str, OldRecords] = {}
            for expired in logs.run_retention(now_ms):
                if expired is not None:
                    more = old.get(expired.topic)
                    old[expired.topic] = expired if more is None else _together(expired, more)
                await asyncio.sleep(0)
                if self._stopping.is_set():
                    return
            self._report(old.values())
            await asyncio.to_thread(logs.purge)
            await asyncio.to_thread(logs.write_checkpoints)

    def _report(self, old: Iterable[OldRecords]) -> None:
        """Name the records that retention deleted at once, because it counts from their timestamps."""
        for expired in old:
            self._events.warning(
                "old_records_expired",
                expired.topic,
                topic=expired.topic,
                records=expired.records,
                latest_timestamp_ms=expired.latest_timestamp_ms,
                retention_ms=expired.retention_ms,
                advice=_OLD_ADVICE,
            )

    async def _open_again(self) -> None:
        self._open_lacking()

    async def expire_producers(self) -> None:
        """Forget idle producers, some thousands per step, so that a million at once do not stop the loop."""
        expired = 0
        for count in self._partitions.logs.expire_producers(self._steady_ms()):
            expired += count
            await asyncio.sleep(0)
            if self._stopping.is_set():
                return
        if expired:
            logger.info("producer_ids_expired", count=expired)


def _together(one: OldRecords, other: OldRecords) -> OldRecords:
    """The same of two partitions of a topic."""
    latest_ms = max(one.latest_timestamp_ms, other.latest_timestamp_ms)
    return one._replace(records=one.records + other.records, latest_timestamp_ms=latest_ms)
