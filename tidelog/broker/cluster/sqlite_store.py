"""The embedded store of one broker: a SQLite file in the data folder, and its copy.

Owns `cluster.db` and `cluster.copy`: which of them counts at the opening (`choice` decides), and that both
hold a commit before it returns.

Invariants:
- a commit is durable in SQLite (WAL with synchronous=FULL), then in the copy, then it returns;
- every opening finds and checks all facts, or StoreError says what to do. A SQLite file that the
  copy replaces is kept under another name;
- at every opening the log of SQLite is brought into its file, so that no fact stays in the log alone;
- SQLite runs in one thread of its own, never on the event loop;
- a watch gives the commits of this object. It does not give those of another process, because SQLite does
  not report them; none can be made, because the file is locked while it is open;
- a full disk does not keep a topic from being deleted: see `broker.cluster.disk_space`. If the disk has no
  space for the copy, the copy is marked as invalid, an event says so, and a later commit writes it again.
"""

import asyncio
import errno
import os
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import structlog

from tidelog.broker.cluster import second_copy, sqlite_file
from tidelog.broker.cluster.catalog import Catalog, Delta
from tidelog.broker.cluster.choice import Found, Source, advice, choose, copy_path
from tidelog.broker.cluster.commit_feed import CommitFeed
from tidelog.broker.cluster.disk_space import keep_room
from tidelog.broker.cluster.facts import StoredCluster
from tidelog.broker.cluster.sqlite_file import Damaged
from tidelog.broker.cluster.store import Commit, StoreConflict, StoreError, new_cluster_id

logger = structlog.get_logger(__name__)
DATABASE_SUFFIXES = ("", "-wal", "-shm")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NONCES: Final = 100
"""How many commits are remembered by their nonces: more than there are brokers on one SQLite file."""
_T = TypeVar("_T")

MOVED: Final = ".moved-to-etcd"
"""Behind the names of the files whose catalog is in etcd now."""


class SqliteStore:
    """ClusterStore in one SQLite file and its copy, for one broker."""

    def __init__(
        self,
        path: Path,
        *,
        node_id: int,
        cluster_id: str | None = None,
        may_begin: bool = True,
        was_clean: bool = True,
        is_shared: bool = False,
    ) -> None:
        """`cluster_id`: what a new store shall carry (None: a random one), and what an old one must carry.

        `may_begin`: whether there may be no store yet; `was_clean`: the last broker was stopped, not killed.
        `is_shared`: other processes commit through this one, so `settle` has to hold beyond its end.
        """
        self.is_newest = True
        self._path = path
        self._copy_path = copy_path(path)
        self._node_id = node_id
        self._wanted_cluster_id = cluster_id
        self._may_begin = may_begin
        self._was_clean = was_clean
        self._is_shared = is_shared
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-store")
        self._connection: sqlite3.Connection | None = None
        self._copy: second_copy.CopyFile | None = None
        """None too if the disk had no space for one."""
        self._is_in_doubt = False
        self._feed = CommitFeed()
        self._unknown: tuple[Commit, UUID | None] | None = None
        """A commit that failed, until a load shows whether it is stored."""
        self._stored: deque[UUID] = deque(maxlen=_NONCES)
        """The nonces of the last commits."""
        self._revision = -1
        """Of the newest commit that watchers know of; -1 before the first load."""

    async def load(self) -> Catalog:
        loop = asyncio.get_running_loop()
        catalog = await self._run(lambda: self._certain(loop))
        self._feed.begin(catalog.revision)
        return catalog

    async def commit(
        self,
        deltas: Sequence[Delta],
        expected_revision: int,
        *,
        nonce: UUID | None = None,
        without_session: int | None = None,
    ) -> None:
        # No broker has a session here.
        made, loop = Commit(expected_revision + len(deltas), tuple(deltas)), asyncio.get_running_loop()
        await self._run(lambda: self._commit_one(made, expected_revision, nonce, loop))

    async def settle(self, nonce: UUID, expected_revision: int) -> bool:
        loop = asyncio.get_running_loop()
        return await self._run(lambda: self._is_settled(nonce, loop))

    def watch(self, revision: int) -> AsyncIterator[Commit]:
        return self._feed.watch(revision)

    async def close(self) -> None:
        try:
            await self._run(self._close)
        finally:
            self._thread.shutdown(wait=True)
            self._feed.close()

    def _run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run in the store's thread; the work finishes even if the caller is cancelled."""
        return asyncio.get_running_loop().run_in_executor(self._thread, self._translated, work)

    def _translated(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except (sqlite3.Error, Damaged) as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_BUSY"):
                what_to_do = "Close other programs that use it: a running broker locks the file."
            elif isinstance(error, Damaged) or sqlite_file.is_damage(error):
                what_to_do = advice(self._path)
            else:
                what_to_do = "Check that the disk works and has free space, and that this user may write."
            raise StoreError(f"{self._path} cannot be used: {error}. {what_to_do}") from error

    def _commit_one(
        self, made: Commit, expected_revision: int, nonce: UUID | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        if self._unknown is not None:
            self._certain(loop)
        try:
            self._commit(made.deltas, expected_revision, *((nonce,) if self._is_shared else ()))
        except StoreConflict as conflict:
            if expected_revision == self._revision:
                # No watcher will ever get what is stored there, so a writer must not wait for it.
                raise StoreError(
                    f"{self._path}: {conflict}. Something else wrote or replaced it; put back the newest one "
                    "and restart the broker"
                ) from conflict
            raise
        except BaseException:
            self._unknown = made, nonce
            raise
        self._is_stored(made, nonce, loop)

    def _is_settled(self, nonce: UUID, loop: asyncio.AbstractEventLoop) -> bool:
        self._certain(loop)
        if nonce in self._stored:
            return True
        connection = self._connection
        return self._is_shared and connection is not None and sqlite_file.is_remembered(connection, nonce)

    def _certain(self, loop: asyncio.AbstractEventLoop) -> Catalog:
        """What is stored. It shows what became of a commit that failed."""
        catalog = self._load()
        unknown, self._unknown = self._unknown, None
        if unknown is not None and unknown[0].revision == catalog.revision:
            self._is_stored(*unknown, loop)
        if self._revision < 0:
            self._revision = catalog.revision
        return catalog

    def _is_stored(self, made: Commit, nonce: UUID | None, loop: asyncio.AbstractEventLoop) -> None:
        self._revision = made.revision
        # From the store's thread, so that the watchers get it in order, and also if the caller was cancelled.
        loop.call_soon_threadsafe(self._feed.publish, made)
        if nonce is not None:
            self._stored.append(nonce)

    def _load(self) -> Catalog:
        if self._connection is None:
            return self._open()[1].catalog
        return _stored(self._connection).catalog

    def _open(self) -> tuple[sqlite3.Connection, StoredCluster]:
        """Open both files and make them agree; returns what they hold."""
        self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
        copy = second_copy.read_copy(self._copy_path)
        connection, database = _opened_database(self._path)
        try:
            source = choose(self._path, database, copy, was_clean=self._was_clean)
            held = {Source.DATABASE: database.cluster, Source.COPY: copy.cluster}.get(source)
            if held is None:
                held = self._new_cluster()
            self._check_identity(held)
            if source is Source.NOTHING:
                # First, because a SQLite file without a copy counts as one that lost its copy.
                second_copy.write_copy(self._copy_path, held)
            if source is not Source.DATABASE or connection is None:
                connection = self._replaced(connection, database, held)
            self._checkpoint(connection)
            self._begin_copy(held, copy)
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        self.is_newest &= source is not Source.DATABASE or copy.cluster is not None
        self._is_in_doubt = False
        self._was_clean = True  # From now on the contents are known.
        if self._is_shared:
            sqlite_file.keep_nonces(connection)
        keep_room(self._path)
        self._connection = connection
        return connection, held

    def _new_cluster(self) -> StoredCluster:
        if Path(f"{self._path}{MOVED}").exists():
            raise StoreError(
                f"the catalog of {self._path.parent} was moved to etcd: set cluster.store. If that move "
                "was not finished, run `tidelog cluster move-to-etcd` again"
            )
        if not self._may_begin:
            raise StoreError(
                f"{self._path} and its copy {self._copy_path.name} are missing. {advice(self._path)}. "
                "If the catalog is in etcd, set cluster.store instead"
            )
        return StoredCluster(Catalog(self._wanted_cluster_id or new_cluster_id()), self._node_id)

    def _check_identity(self, held: StoredCluster) -> None:
        folder = self._path.parent
        if held.node_id != self._node_id:
            raise StoreError(
                f"the data folder {folder} belongs to node.id {held.node_id}, "
                f"this broker is {self._node_id}; set node.id={held.node_id} or name another data.dir"
            )
        if self._wanted_cluster_id not in (None, held.catalog.cluster_id):
            raise StoreError(
                f"the data folder {folder} belongs to cluster.id {held.catalog.cluster_id}, "
                f"the configuration says {self._wanted_cluster_id}; change it or name another data.dir"
            )

    def _replaced(
        self, connection: sqlite3.Connection | None, database: Found, held: StoredCluster
    ) -> sqlite3.Connection:
        """A new SQLite file with `held` in it; what was there before is kept."""
        # Before the connection is closed: closing it removes SQLite's log.
        kept = None if database.is_absent else set_aside(self._path)
        if connection is not None:
            connection.close()
        for suffix in DATABASE_SUFFIXES:
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        replacement = _written(self._path, held)
        if held.catalog.revision or kept is not None:
            logger.warning(
                "cluster_store_restored",
                revision=held.catalog.revision,
                topics=len(held.catalog),
                found=database.state,
                kept_as=kept.name if kept is not None else "",
                advice="nothing is lost, the copy had all of it; check the disk that holds the data folder",
            )
        return replacement

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # Pages of a failed sync may never reach the disk: then write their contents again.
        mode = "TRUNCATE" if self._is_in_doubt else "RESTART"
        try:
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            if self._is_in_doubt or error.sqlite_errorname != "SQLITE_FULL":
                raise

    def _begin_copy(self, held: StoredCluster, copy: Found) -> None:
        """Open the existing copy, or write one."""
        copied = copy.cluster
        if copied is not None and copied.catalog.revision == held.catalog.revision and not self._is_in_doubt:
            self._copy = second_copy.CopyFile(self._copy_path)
            return
        if copy.problem:
            logger.warning(
                "cluster_copy_damaged",
                error=copy.problem,
                advice="it is written again, nothing is lost; check the disk that holds the data folder",
            )
        self._renew_copy(held)

    def _renew_copy(self, held: StoredCluster) -> None:
        self._close_copy()
        try:
            second_copy.write_copy(self._copy_path, held)
            self._copy = second_copy.CopyFile(self._copy_path)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            # No copy is better than one that lacks acknowledged commits.
            second_copy.give_up(self._copy_path)
            logger.warning(
                "cluster_copy_given_up",
                error=str(error),
                advice="free space on the disk that holds the data folder; the next change writes it again",
            )

    def _commit(self, deltas: Sequence[Delta], expected_revision: int, nonce: UUID | None = None) -> None:
        connection = self._connection or self._open()[0]
        revision = expected_revision + len(deltas)
        connection.execute("BEGIN IMMEDIATE")
        try:
            stored = sqlite_file.revision_of(connection)
            if stored != expected_revision:
                raise StoreConflict(f"expected revision {expected_revision} in the store, got {stored}")
            sqlite_file.write_deltas(connection, deltas, revision)
            if nonce is not None:
                sqlite_file.remember(connection, nonce, revision)
            connection.execute("COMMIT")
            self._add_to_copy(connection, second_copy.commit_line(deltas, revision))
        except StoreConflict:
            connection.execute("ROLLBACK")
            raise
        except BaseException as error:
            # Opening the files as after a crash shows what a failed commit left in them.
            # SQLITE_FULL comes only from writes, so all syncs were good; a full disk allows no checkpoint.
            self._is_in_doubt |= getattr(error, "sqlite_errorname", "") != "SQLITE_FULL"
            self._close()
            raise

    def _add_to_copy(self, connection: sqlite3.Connection, line: bytes) -> None:
        if self._copy is not None and self._copy.has_room_for(line):
            try:
                self._copy.append(line)
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
        self._renew_copy(_stored(connection))

    def _close(self) -> None:
        self._close_copy()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            keep_room(self._path)

    def _close_copy(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()


def _opened_database(path: Path) -> tuple[sqlite3.Connection | None, Found]:
    """A connection to the file, none where there is nothing to connect to, and what it holds.

    Raises sqlite3.Error and StoreError for what says nothing about the contents, OSError.
    """
    if not path.exists() or path.stat().st_size == 0:
        log = path.with_name(path.name + "-wal")
        # SQLite would delete the log.
        has_log = log.exists() and log.read_bytes().strip(b"\0")
        return None, Found(problem="missing or empty beside its log") if has_log else Found()
    connection = None
    try:
        connection = sqlite_file.connect(path)
        cluster = sqlite_file.read_cluster(connection)
        if cluster is None:
            return connection, Found()
        return connection, Found(cluster, newest_revision=cluster.catalog.revision)
    except Damaged as error:
        return connection, Found(problem=str(error))
    except BaseException:
        if connection is not None:
            connection.close()
        raise


def _stored(connection: sqlite3.Connection) -> StoredCluster:
    stored = sqlite_file.read_cluster(connection)
    if stored is None:
        raise Damaged("it is empty")
    return stored


def _written(path: Path, cluster: StoredCluster) -> sqlite3.Connection:
    """A new SQLite file where there is none, with `cluster` in it."""
    connection = sqlite_file.connect(path)
    try:
        sqlite_file.write_new(connection, cluster)
    except BaseException:
        connection.close()
        raise
    return connection


def write_store(path: Path, cluster: StoredCluster) -> None:
    """Write a whole new store where none exists, while no broker runs.

    Raises OSError, StoreError.
    """
    second_copy.write_copy(copy_path(path), cluster)
    try:
        _written(path, cluster).close()
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
    keep_room(path)


def set_aside(path: Path) -> Path | None:
    """Rename a file of the store, and SQLite's files for it, so that they are kept; None for no file.

    Raises OSError.
    """
    there = [suffix for suffix in DATABASE_SUFFIXES if Path(f"{path}{suffix}").exists()]
    if not there:
        return None
    number = 1
    while any(Path(f"{path}.kept-{number}{suffix}").exists() for suffix in DATABASE_SUFFIXES):
        number += 1
    for suffix in there:
        os.rename(f"{path}{suffix}", f"{path}.kept-{number}{suffix}")
    return Path(f"{path}.kept-{number}")


def read_store(path: Path) -> tuple[Found, Found]:
    """What the store of a broker that does not run holds, in SQLite and in the copy.

    Nothing in the folder is changed. Raises StoreError if it cannot be read, OSError.
    """
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tidelog-") as folder:
        # In WAL mode SQLite writes files next to a database even to read it, so it gets a copy.
        there = Path(folder) / path.name
        for suffix in DATABASE_SUFFIXES:
            if Path(f"{path}{suffix}").exists():
                shutil.copyfile(f"{path}{suffix}", f"{there}{suffix}")
        try:
            connection, database = _opened_database(there)
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        if connection is not None:
            connection.close()
    return database, second_copy.read_copy(copy_path(path))
