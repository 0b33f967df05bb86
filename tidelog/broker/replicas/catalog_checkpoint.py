"""How far this broker has seen the catalog, in its data folder: the highest revision, and the highest bound
of producer ids.

For a broker among others. Owns the notes, and the refusal of a catalog with lower ones: it is a restored
older one, which may name a replica as in sync that had left, or assign ids again.

Invariants: a bound is durable before an id of an own block is given; a leader with followers commits nothing
under a state of the catalog before its revision is durable (`when_noted`), unless the disk refuses the note;
nothing that a client sends changes a note, so ids that a client chooses itself never prevent a start; after
`close` nothing is written.

The store of one machine's processes has no revision here: it may be replaced by an older one.

On the event loop; files in threads.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from tidelog.broker.cluster.catalog import Change, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.storage.checkpoints import (
    CATALOG_REVISION,
    PRODUCER_IDS_BOUND,
    CheckpointError,
    read_number,
    write_number,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.broker.tasks import Tasks
from tidelog.protocol.steps import Pace

logger = structlog.get_logger(__name__)


class CatalogCheckpoint:
    """Notes how far a broker has seen the catalog, in its data folder."""

    def __init__(self, cluster: Cluster, disk: Disk, data_dir: Path, *, has_revision: bool) -> None:
        self._cluster = cluster
        self._data_dir = data_dir
        self._bound = _Note(disk, data_dir / PRODUCER_IDS_BOUND)
        self._revision = _Note(disk, data_dir / CATALOG_REVISION)
        self._has_revision = has_revision
        self._is_noting = False
        """Whether the image has a revision that is not noted yet."""
        self._is_troubled = False
        self._waiting: list[Callable[[], None]] = []
        self._notes = Tasks()

    async def begin(self) -> None:
        """Follow the catalog from now on. Raises DataFolderError for an older catalog, OSError."""
        bound, revision = self._cluster.catalog.next_producer_id, self._cluster.catalog.revision
        if self._has_revision and revision < (known := await self._revision.read()):
            raise DataFolderError(
                f"the catalog is older than {self._data_dir}: it is at revision {revision}, and this broker "
                f"has seen revision {known}. Stop all brokers and put back the newest catalog. If "
                "it is lost, run `tidelog cluster raise-producer-ids` at each broker: it accepts this one"
            )
        if bound < (known := await self._bound.read()):
            raise DataFolderError(
                f"the catalog is older than {self._data_dir}: this broker has seen the producer ids below "
                f"{known} reserved, and the catalog would give ids from {bound} on. Stop all brokers "
                "and put back the newest catalog. If it is lost, let this one skip the ids: with etcd by "
                "`tidelog cluster raise-producer-ids` at each broker, with several processes by "
                "`tidelog storage rebuild-catalog`"
            )
        self._cluster.follow(self._follow)
        await self.note_bound(bound)
        if self._has_revision:
            await self._revision.note(self._cluster.catalog.revision)

    def _follow(self, change: Change) -> None:
        if isinstance(change.delta, ProducerIdsReserved):
            self._notes.begin(self._note_seen(change.delta.next_producer_id))
        if self._has_revision and not self._is_noting:
            self._is_noting = True
            self._notes.begin(self._note_revision())

    async def _note_seen(self, bound: int) -> None:
        try:
            await self.note_bound(bound)
        except OSError as error:
            advice = "check the disk; until this bound is written, an older catalog may not be recognised"
            logger.warning("producer_ids_bound_not_noted", error=str(error), advice=advice)

    async def note_bound(self, bound: int) -> None:
        """Return once this bound of producer ids is durable. Raises OSError."""
        await self._bound.note(bound)

    async def _note_revision(self) -> None:
        loop, pace = asyncio.get_running_loop(), Pace()
        revision = -1
        while self._waiting or revision < self._cluster.catalog.revision:
            waiting, self._waiting = self._waiting, []
            revision = self._cluster.catalog.revision
            try:
                await self._revision.note(revision)
                self._is_troubled = False
            except OSError as error:
                if not self._is_troubled:
                    advice = "check the disk; until it is written, an older catalog may not be recognised"
                    logger.warning("catalog_revision_not_noted", error=str(error), advice=advice)
                self._is_troubled = True
            for tell in waiting:
                loop.call_soon(tell)
                if pace.spent():
                    await asyncio.sleep(0)
        self._is_noting = False

    def when_noted(self, tell: Callable[[], None]) -> bool:
        """Whether the folder knows the revision of the image; else `tell` is called when it does."""
        if self._is_noting:
            self._waiting.append(tell)
        return not self._is_noting

    async def close(self) -> None:
        """Write nothing more. A write that runs is awaited."""
        self._bound.is_closed = self._revision.is_closed = True
        await self._notes.ended()


class _Note:
    """The highest number that a file has to hold. Writes follow each other, and each writes the newest."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._wanted = self._noted = 0
        self._lock = asyncio.Lock()
        self.is_closed = False

    async def read(self) -> int:
        """What the file holds. Raises DataFolderError, OSError."""
        try:
            self._wanted = self._noted = await asyncio.to_thread(read_number, self._disk, self._path)
        except CheckpointError as error:
            raise DataFolderError(f"{error}; if the catalog is the newest one, remove the file") from error
        return self._noted

    async def note(self, number: int) -> None:
        """Return once the file holds this number, or a higher one, durably. Raises OSError."""
        self._wanted = max(self._wanted, number)
        async with self._lock:
            if (wanted := self._wanted) > self._noted and not self.is_closed:
                await asyncio.to_thread(write_number, self._disk, self._path, wanted)
                self._noted = wanted
