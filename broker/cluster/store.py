"""Where the catalog persists: an interface that any transactional store can serve, and SQLite behind it.

Owns `cluster.db` in the data folder. Whoever changes the catalog calls `commit` first and applies the
deltas only after it has returned.

Invariants:
- `commit` is atomic and durable when it returns (WAL with synchronous=FULL); when it raises, `load` says
  whether it is stored, and what that shows is durable;
- it names the revision it builds on, and fails with StoreConflict when another writer came first, so the
  interface carries over to a store that several brokers share (etcd: a transaction on a key's revision);
- SQLite runs in one thread of its own, never on the event loop;
- a full disk does not keep a topic from being deleted: see `broker.cluster.room`.

Called by `broker.services` (open, load, close), `broker.topics` and the producer id shell (commit).
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    Catalog,
    Delta,
    PartitionAssignment,
    PartitionsAdded,
    ProducerIdsReserved,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.cluster.room import CHECKPOINT_FRAMES, keep_room

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION = 1
_LOCK_SECONDS = 5.0
"""How long another process may still have the file open."""
_T = TypeVar("_T")

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    sequence INTEGER PRIMARY KEY, topic_id BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
    configs TEXT NOT NULL
);
CREATE TABLE partitions (
    topic_id BLOB NOT NULL, partition INTEGER NOT NULL, leader_id INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL, replicas TEXT NOT NULL, isr TEXT NOT NULL,
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;
"""


class StoreError(Exception):
    """The store cannot be used as it is; the message says what to do."""


class StoreConflict(Exception):
    """Another writer committed since the revision this commit builds on: load again and decide anew."""


class ClusterStore(Protocol):
    """What the broker needs of a store. Every call may raise OSError or StoreError."""

    async def load(self) -> Catalog:
        """The whole image at its newest revision."""

    async def commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        """Make the deltas durable, all or none.

        Raises StoreConflict when `expected_revision` is not the newest; nothing is stored then. After any
        other error they may be stored: the next `load` tells.
        """

    async def close(self) -> None:
        """Release what the store holds. No call may follow."""


def new_cluster_id() -> str:
    """A random UUID in URL-safe base64 without padding: the 22 characters that Kafka uses."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


class SqliteStore:
    """ClusterStore in one SQLite file, for one broker."""

    def __init__(self, path: Path, *, node_id: int, cluster_id: str | None = None) -> None:
        """`cluster_id`: what a new store shall carry (None: a random one), and what an old one must carry."""
        self._path = path
        self._node_id = node_id
        self._wanted_cluster_id = cluster_id
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-store")
        self._connection: sqlite3.Connection | None = None
        self._is_in_doubt = False

    async def load(self) -> Catalog:
        return await self._run(self._load)

    async def commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        await self._run(lambda: self._commit(deltas, expected_revision))

    async def close(self) -> None:
        await self._run(self._close)
        self._thread.shutdown(wait=True)

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run in the store's thread; a cancelled caller still leaves the work to finish."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._translated, work)

    def _translated(self, work: Callable[[], _T]) -> _T:
        import sqlite3

        try:
            return work()
        except sqlite3.Error as error:
            advice = (
                "Close what has it open: while a broker runs, the file is its own."
                if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                else "Check that the disk has room and that the file is a Tidelog cluster store; "
                "restore it from a backup if it is damaged."
            )
            raise StoreError(f"{self._path} cannot be used: {error}. {advice}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        import sqlite3

        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, _LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Alone, and so without the memory file that others would share: on a full disk a page of it that
            # has no block yet is the end of the process.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_FRAMES}")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._create(connection)
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"{self._path} has schema version {version}, this broker reads {SCHEMA_VERSION}; "
                    "start the Tidelog release that wrote it"
                )
            self._check_identity(connection)
            if self._is_in_doubt:
                # Pages that a failed sync left may never reach the disk: write what they say again.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._is_in_doubt = False
        except BaseException:
            connection.close()
            raise
        keep_room(self._path)
        self._connection = connection
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        identity = {
            "cluster_id": self._wanted_cluster_id or new_cluster_id(),
            "node_id": str(self._node_id),
            "next_producer_id": "0",
            "revision": "0",
        }
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", identity.items())
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def _check_identity(self, connection: sqlite3.Connection) -> None:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        if meta["node_id"] != str(self._node_id):
            raise StoreError(
                f"the data folder {self._path.parent} belongs to node.id {meta['node_id']}, "
                f"this broker is {self._node_id}; set node.id={meta['node_id']} or name another data.dir"
            )
        if self._wanted_cluster_id not in (None, meta["cluster_id"]):
            raise StoreError(
                f"the data folder {self._path.parent} belongs to cluster.id {meta['cluster_id']}, "
                f"the configuration says {self._wanted_cluster_id}; change it or name another data.dir"
            )

    def _load(self) -> Catalog:
        return _read_image(self._open())

    def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            (stored,) = connection.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
            if int(stored) != expected_revision:
                raise StoreConflict(f"revision {expected_revision} was expected, the store is at {stored}")
            for delta in deltas:
                _write(connection, delta)
            _set_meta(connection, "revision", expected_revision + len(deltas))
            connection.execute("COMMIT")
        except StoreConflict:
            connection.execute("ROLLBACK")
            raise
        except BaseException as error:
            # What a commit that failed left in the files shows when they are opened as after a crash.
            # It says "full" of writes alone, so what it synced holds; and a full disk takes no checkpoint.
            self._is_in_doubt |= getattr(error, "sqlite_errorname", "") != "SQLITE_FULL"
            self._close()
            raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            keep_room(self._path)


def _read_image(connection: sqlite3.Connection) -> Catalog:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    partitions: dict[bytes, list[PartitionAssignment]] = {}
    for topic_id, leader_id, leader_epoch, replicas, isr in connection.execute(
        "SELECT topic_id, leader_id, leader_epoch, replicas, isr FROM partitions ORDER BY topic_id, partition"
    ):
        partitions.setdefault(topic_id, []).append(
            PartitionAssignment(leader_id, leader_epoch, tuple(json.loads(replicas)), tuple(json.loads(isr)))
        )
    topics = [
        Topic(name, UUID(bytes=topic_id), tuple(partitions.get(topic_id, ())), json.loads(configs))
        for topic_id, name, configs in connection.execute(
            "SELECT topic_id, name, configs FROM topics ORDER BY sequence"
        )
    ]
    return Catalog(meta["cluster_id"], topics, int(meta["next_producer_id"]), revision=int(meta["revision"]))


class StoredCluster(NamedTuple):
    """What a store holds: the image, and the broker that it belongs to."""

    catalog: Catalog
    node_id: int


def read_store(path: Path) -> StoredCluster:
    """What is in the SQLite file of a broker that does not run, with not a byte of it or beside it changed.

    Checks the file's own integrity first. Raises StoreError and OSError.
    """
    import shutil
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tidelog-") as folder:
        # SQLite writes beside a database in WAL mode even to read it, so it gets a copy.
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            if path.with_name(path.name + suffix).exists():
                shutil.copyfile(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
        try:
            connection = sqlite3.connect(copy, isolation_level=None)
            try:
                (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if verdict != "ok":
                    raise StoreError(f"SQLite finds it damaged: {verdict}")
                if version != SCHEMA_VERSION:
                    raise StoreError(f"schema version {version}, expected {SCHEMA_VERSION}")
                (node_id,) = connection.execute("SELECT value FROM meta WHERE key = 'node_id'").fetchone()
                return StoredCluster(_read_image(connection), int(node_id))
            finally:
                connection.close()
        except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"it cannot be read: {error}") from error


def _set_meta(connection: sqlite3.Connection, key: str, value: int) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", (str(value), key))


def _write(connection: sqlite3.Connection, delta: Delta) -> None:
    match delta:
        case TopicCreated(topic):
            connection.execute(
                "INSERT INTO topics (topic_id, name, configs) VALUES (?, ?, ?)",
                (topic.topic_id.bytes, topic.name, json.dumps(dict(topic.configs))),
            )
            _insert_partitions(connection, topic.topic_id, 0, topic.partitions)
        case TopicDeleted(topic_id):
            connection.execute("DELETE FROM topics WHERE topic_id = ?", (topic_id.bytes,))
            connection.execute("DELETE FROM partitions WHERE topic_id = ?", (topic_id.bytes,))
        case PartitionsAdded(topic_id, partitions):
            (present,) = connection.execute(
                "SELECT count(*) FROM partitions WHERE topic_id = ?", (topic_id.bytes,)
            ).fetchone()
            _insert_partitions(connection, topic_id, present, partitions)
        case TopicConfigsChanged(topic_id, configs):
            connection.execute(
                "UPDATE topics SET configs = ? WHERE topic_id = ?",
                (json.dumps(dict(configs)), topic_id.bytes),
            )
        case ProducerIdsReserved(next_producer_id):
            _set_meta(connection, "next_producer_id", next_producer_id)


def _insert_partitions(
    connection: sqlite3.Connection, topic_id: UUID, first: int, partitions: Sequence[PartitionAssignment]
) -> None:
    connection.executemany(
        "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                topic_id.bytes,
                first + index,
                assigned.leader_id,
                assigned.leader_epoch,
                json.dumps(assigned.replicas),
                json.dumps(assigned.isr),
            )
            for index, assigned in enumerate(partitions)
        ],
    )
