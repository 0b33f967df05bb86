"""How far this broker has seen the catalog, in its data folder: the newest commit, and the highest bound of
producer ids.

For a broker among others. Owns the notes, and the refusal of a catalog that lacks this commit, or has a lower
bound: it is a restored older one, which may name a replica as in sync that had left, or assign ids again.

Invariants: a bound is durable before an id of an own block is given; a leader with followers commits nothing
under a state of the catalog before its commit is noted (`when_noted`), unless the disk refuses the note;
nothing that a client sends changes a note, so ids that a client chooses itself never prevent a start; after
`close` nothing is written.

Of a store that is not watched no commit is noted: one machine's processes may use an older one.

On the event loop; files in threads.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from tidelog.broker.cluster.catalog import Change, ProducerIdsReserved
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.store import SeenCommit, WatchedStore
from tidelog.broker.storage.checkpoints import (
    CATALOG_COMMIT,
    PRODUCER_IDS_BOUND,
    CheckpointError,
    read_commit,
    read_number,
    write_commit,
    write_number,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.broker.tasks import Tasks
from tidelog.protocol.steps import Pace

logger = structlog.get_logger(__name__)
_Noted = TypeVar("_Noted", int, tuple[int, str])


class CatalogCheckpoint:
    """Notes how far a broker has seen the catalog, in its data folder."""

    def __init__(self, cluster: Cluster, disk: Disk, data_dir: Path, store: WatchedStore | None) -> None:
        """`store`: that of the catalog, if it is watched."""
        self._cluster = cluster
        self._data_dir = data_dir
        self._store = store
        self._bound = _Note(disk, data_dir / PRODUCER_IDS_BOUND, read_number, write_number, 0)
        self._commit = _Note(disk, data_dir / CATALOG_COMMIT, read_commit, write_commit, (0, ""))
        self._is_noting = False
        """Whether the image has a commit that is not noted yet."""
        self._is_troubled = False
        self._waiting: list[Callable[[], None]] = []
        self._notes = Tasks()

    async def begin(self) -> None:
        """Follow the catalog from now on. Raises DataFolderError for an older catalog, OSError."""
        bound, revision = self._cluster.catalog.next_producer_id, self._cluster.catalog.revision
        if self._store is not None:
            seen = SeenCommit(*await self._commit.read())
            if revision < seen.revision or not await self._store.holds(seen):
                raise DataFolderError(
                    f"the catalog is older than {self._data_dir}: it is at revision {revision}, and lacks "
                    f"revision {seen.revision} as this broker has seen it. Stop all brokers and put back the "
                    "newest catalog. If it is lost, run `tidelog cluster raise-producer-ids` at each broker: "
                    "it accepts this one"
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
        if self._store is not None:
            await self._commit.note(self._store.seen)

    def _follow(self, change: Change) -> None:
        if isinstance(change.delta, ProducerIdsReserved):
            self._notes.begin(self._note_seen(change.delta.next_producer_id))
        if self._store is not None and not self._is_noting:
            self._is_noting = True
            self._notes.begin(self._note_commits(self._store))

    async def _note_seen(self, bound: int) -> None:
        try:
            await self.note_bound(bound)
        except Exception as error:
            _warn("producer_ids_bound_not_noted", error)

    async def note_bound(self, bound: int) -> None:
        """Return once this bound of producer ids is durable. Raises OSError."""
        await self._bound.note(bound)

    async def _note_commits(self, store: WatchedStore) -> None:
        loop, pace = asyncio.get_running_loop(), Pace()
        revision = -1
        while self._waiting or revision < self._cluster.catalog.revision:
            waiting, self._waiting = self._waiting, []
            revision = self._cluster.catalog.revision
            try:
                await self._commit.note(store.seen)
                self._is_troubled = False
            except Exception as error:
                if not self._is_troubled:
                    _warn("catalog_revision_not_noted", error)
                self._is_troubled = True
            for tell in waiting:
                loop.call_soon(tell)
                if pace.spent():
                    await asyncio.sleep(0)
        self._is_noting = False

    def when_noted(self, tell: Callable[[], None]) -> bool:
        """Whether the folder knows the commit of the image; else `tell` is called when it does, or cannot."""
        if self._is_noting:
            self._waiting.append(tell)
        return not self._is_noting

    async def close(self) -> None:
        """Write nothing more. A write that runs is awaited."""
        self._bound.is_closed = self._commit.is_closed = True
        await self._notes.ended()


def _warn(event: str, error: Exception) -> None:
    logger.warning(
        event,
        error=repr(error),
        exc_info=None if isinstance(error, OSError) else error,
        advice="check the disk; until it is written, an older catalog may not be recognised",
    )


class _Note(Generic[_Noted]):
    """The highest value that a file has to hold. Writes follow each other, and each writes the newest."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        read: Callable[[Disk, Path], _Noted],
        write: Callable[[Disk, Path, _Noted], None],
        lowest: _Noted,
    ) -> None:
        self._disk = disk
        self._path = path
        self._read: Callable[[Disk, Path], _Noted] = read
        self._write: Callable[[Disk, Path, _Noted], None] = write
        self._wanted: _Noted = lowest
        self._noted: _Noted = lowest
        self._lock = asyncio.Lock()
        self.is_closed = False

    async def read(self) -> _Noted:
        """What the file holds. Raises DataFolderError, OSError."""
        try:
            self._wanted = self._noted = await asyncio.to_thread(self._read, self._disk, self._path)
        except CheckpointError as error:
            raise DataFolderError(f"{error}; if the catalog is the newest one, remove the file") from error
        return self._noted

    async def note(self, value: _Noted) -> None:
        """Return once the file holds this value, or a higher one, durably. Raises OSError."""
        self._wanted = max(self._wanted, value)
        async with self._lock:
            if (wanted := self._wanted) > self._noted and not self.is_closed:
                await asyncio.to_thread(self._write, self._disk, self._path, wanted)
                self._noted = wanted
