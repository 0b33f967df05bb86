"""The highest bound of producer ids that this broker saw in the catalog, in its data folder.

For a broker among others. Owns the note, and the refusal of a catalog with a lower bound: it is a restored
older one, which would assign ids again.

Invariants: the note is durable before an id of an own block is given; nothing that a client sends changes it,
so ids that a client chooses itself never prevent a start; after `close` nothing is written.

On the event loop; files in threads.
"""

import asyncio
from pathlib import Path

import structlog

from tidelog.broker.cluster.catalog import Change, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.storage.checkpoints import PRODUCER_IDS_BOUND, CheckpointError, read_number, write_number
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.broker.tasks import Tasks

logger = structlog.get_logger(__name__)


class ProducerIdCheckpoint:
    """Stores the highest bound of producer ids that a broker saw in the catalog, in its data folder."""

    def __init__(self, cluster: Cluster, disk: Disk, data_dir: Path) -> None:
        self._cluster = cluster
        self._disk = disk
        self._path = data_dir / PRODUCER_IDS_BOUND
        self._noted = 0
        self._lock = asyncio.Lock()
        self._notes = Tasks()
        self._is_closed = False

    async def begin(self) -> None:
        """Follow the catalog from now on. Raises DataFolderError for an older catalog, OSError."""
        try:
            self._noted = await asyncio.to_thread(read_number, self._disk, self._path)
        except CheckpointError as error:
            raise DataFolderError(f"{error}; if the catalog is the newest one, remove the file") from error
        bound = self._cluster.catalog.next_producer_id
        if bound < self._noted:
            raise DataFolderError(
                f"the catalog is older than {self._path.parent}: this broker has seen the producer ids below "
                f"{self._noted} reserved, and the catalog would give ids from {bound} on. Stop all brokers "
                "and put back the newest catalog. If it is lost, let this one skip the ids: with etcd by "
                "`tidelog cluster raise-producer-ids` at each broker, with several processes by "
                "`tidelog storage rebuild-catalog`"
            )
        self._cluster.follow(self._follow)
        await self.note(bound)

    def _follow(self, change: Change) -> None:
        if isinstance(change.delta, ProducerIdsReserved):
            self._notes.begin(self._note_seen(change.delta.next_producer_id))

    async def _note_seen(self, bound: int) -> None:
        try:
            await self.note(bound)
        except OSError as error:
            advice = "check the disk; until this bound is written, an older catalog may not be recognised"
            logger.warning("producer_ids_bound_not_noted", error=str(error), advice=advice)

    async def note(self, bound: int) -> None:
        """Return once the note is durable. Raises OSError."""
        async with self._lock:
            if bound > self._noted and not self._is_closed:
                await asyncio.to_thread(write_number, self._disk, self._path, bound)
                self._noted = bound

    async def close(self) -> None:
        """Write nothing more. A write that runs is awaited."""
        self._is_closed = True
        await self._notes.ended()
