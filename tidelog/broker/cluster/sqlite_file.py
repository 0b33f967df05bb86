"""The catalog in a SQLite file: its tables, what is read from them, what a delta writes.

Owns the schema, and the digest of everything in it (see `facts`), which is in the file and changes with each
commit: SQLite has no checksum over its pages, and does not notice wrong bytes.

Invariants: `read_cluster` gives all that was committed or raises Damaged: SQLite's own check, each value and
the digest have to agree. It never returns a part.

Blocking.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tidelog.broker.cluster import facts
from tidelog.broker.cluster.catalog import (
    AclsChanged,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
    ClientQuotasChanged,
    Delta,
    FoldersRemoved,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsReserved,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    UserChanged,
)
from tidelog.broker.cluster.disk_space import CHECKPOINT_FRAMES
from tidelog.broker.cluster.store import StoreError
from tidelog.protocol.acls import Acl
from tidelog.protocol.quotas import QuotaEntity
from tidelog.protocol.scram import ScramCredential, ScramMechanism

SCHEMA_VERSION = 6
_LOCK_SECONDS = 5.0
"""How long to wait for another process that has the file open."""
_REMEMBERED_COMMITS = 100
"""More than there are processes that may ask for one."""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_FORMAT", "SQLITE_MISMATCH")
"""Errors of SQLite, by the beginnings of their names, that are about what is in the file."""

_ACL_COLUMNS = "resource_type, pattern_type, resource_name, principal, host, operation, permission"
_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    sequence INTEGER PRIMARY KEY, topic_id BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
    configs TEXT NOT NULL
);
CREATE TABLE partitions (
    topic_id BLOB NOT NULL, partition INTEGER NOT NULL, leader_id INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL, replicas TEXT NOT NULL, isr TEXT NOT NULL,
    partition_epoch INTEGER NOT NULL, elr TEXT NOT NULL, adding TEXT NOT NULL, removing TEXT NOT NULL,
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;
CREATE TABLE deleted_topics (
    topic_id BLOB NOT NULL, held_by INTEGER NOT NULL, PRIMARY KEY (topic_id, held_by)
) WITHOUT ROWID;
CREATE TABLE brokers (node_id INTEGER PRIMARY KEY, registration TEXT NOT NULL);
CREATE TABLE broker_configs (broker TEXT PRIMARY KEY, configs TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE acls (
    resource_type INTEGER NOT NULL, pattern_type INTEGER NOT NULL, resource_name TEXT NOT NULL,
    principal TEXT NOT NULL, host TEXT NOT NULL, operation INTEGER NOT NULL, permission INTEGER NOT NULL,
    PRIMARY KEY ({_ACL_COLUMNS})
) WITHOUT ROWID;
CREATE TABLE users (name TEXT PRIMARY KEY, credentials TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE client_quotas (entity TEXT PRIMARY KEY, quotas TEXT NOT NULL) WITHOUT ROWID
"""
_PARTITION = "partition, leader_id, leader_epoch, replicas, isr, partition_epoch, elr, adding, removing"
_PARTITIONS = f"SELECT {_PARTITION} FROM partitions WHERE topic_id = ?"


class Damaged(Exception):
    """The file is not what was written. The message says what is wrong with it."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection that has the file for itself. Raises Damaged, sqlite3.Error."""
    connection = sqlite3.connect(path, _LOCK_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with _damage_named():
            # It holds keys of users. SQLite gives its log the same mode.
            os.chmod(path, 0o600)
            # Exclusive, so SQLite uses no shared-memory file: on a full disk a page of it without a block
            # kills the process.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_FRAMES}")
            # Takes the lock, and finds out whether the file can be written.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is damaged, not that it is busy or the disk full or bad."""
    return getattr(error, "sqlite_errorname", "SQLITE_FORMAT").startswith(_DAMAGE)


def read_cluster(connection: sqlite3.Connection) -> facts.StoredCluster | None:
    """All that was committed; None if nothing ever was. Raises Damaged, StoreError for a file of another
    schema version, sqlite3.Error."""
    with _damage_named():
        return _proven(connection)


@contextmanager
def _damage_named() -> Iterator[None]:
    """Turn errors that mean a damaged file into Damaged, and no others."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        raise Damaged(str(error)) from error
    except (ValueError, KeyError, TypeError) as error:
        # Also of Python's sqlite3: it decodes the text of an error, of which a damaged file may be part.
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _proven(connection: sqlite3.Connection) -> facts.StoredCluster | None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not version and not tables:
        return None
    if not version:
        raise Damaged("it has tables and no schema version")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"expected schema version {SCHEMA_VERSION} of the catalog, got {version}. 0.1.0, the "
            "first release, wrote 6. If a later release wrote this file, start that one; if it is older than "
            "0.1.0, begin with an empty data.dir; if neither, the file is damaged: see "
            "`tidelog storage rebuild-catalog`"
        )
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise Damaged(f"SQLite finds it damaged: {' '.join(verdict.split())}")
    cluster = _image(connection)
    if _digest(connection) != facts.catalog_digest(cluster):
        raise Damaged("its contents do not have the digest that was written with them")
    return cluster


def write_new(connection: sqlite3.Connection, cluster: facts.StoredCluster) -> None:
    """Make the tables of an empty file, with all of a cluster in them. Raises sqlite3.Error."""
    catalog = cluster.catalog
    meta = {
        "cluster_id": catalog.cluster_id,
        "node_id": str(cluster.node_id),
        "next_producer_id": str(catalog.next_producer_id),
        "revision": str(catalog.revision),
        "digest": f"{facts.catalog_digest(cluster):032x}",
    }
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    for broker in catalog.brokers.values():
        _write(connection, BrokerRegistered(broker))
    for name, configs in catalog.broker_configs.items():
        _write(connection, BrokerConfigsChanged(name, configs))
    _write(connection, AclsChanged(tuple(catalog.acls)))
    for user, credentials in catalog.users.items():
        _write(connection, UserChanged(user, credentials))
    _write(connection, ClientQuotasChanged(catalog.client_quotas))
    for topic in catalog.topics():
        _write(connection, TopicCreated(topic))
    for topic_id, held_by in catalog.deleted.items():
        _insert_deleted(connection, topic_id, held_by)
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def revision_of(connection: sqlite3.Connection) -> int:
    return int(_meta(connection, "revision"))


def write_deltas(connection: sqlite3.Connection, deltas: Sequence[Delta], revision: int) -> None:
    """Write deltas after which the store is at `revision`, within a transaction.

    Raises sqlite3.Error, and Damaged where what they change cannot be read.
    """
    with _damage_named():
        _write_deltas(connection, deltas, revision)


def _write_deltas(connection: sqlite3.Connection, deltas: Sequence[Delta], revision: int) -> None:
    digest = _digest(connection)
    for delta in deltas:
        digest -= sum(_digests_around(connection, delta))
        _write(connection, delta)
        if isinstance(delta, TopicCreated):
            # It need not be read again: it may have thousands of partitions.
            digest += facts.topic_digest(delta.topic)
        else:
            digest += sum(_digests_around(connection, delta))
    digest -= facts.fact_digest("revision", revision - len(deltas))
    digest += facts.fact_digest("revision", revision)
    _set_meta(connection, "revision", str(revision))
    _set_meta(connection, "digest", f"{digest % facts.DIGEST_MODULUS:032x}")


def keep_nonces(connection: sqlite3.Connection) -> None:
    """Have a table for `remember`. It belongs to no image: it only says which commits are in it."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS commits (revision INTEGER PRIMARY KEY, nonce BLOB NOT NULL) WITHOUT ROWID"
    )


def remember(connection: sqlite3.Connection, nonce: UUID, revision: int) -> None:
    """Note, within the transaction of a commit, that it is stored, and forget the oldest."""
    connection.execute("INSERT INTO commits VALUES (?, ?)", (revision, nonce.bytes))
    oldest = "SELECT revision FROM commits ORDER BY revision DESC LIMIT 1 OFFSET ?"
    connection.execute(f"DELETE FROM commits WHERE revision <= ({oldest})", (_REMEMBERED_COMMITS,))


def is_remembered(connection: sqlite3.Connection, nonce: UUID) -> bool:
    found = connection.execute("SELECT 1 FROM commits WHERE nonce = ?", (nonce.bytes,)).fetchone()
    return found is not None


def _digests_around(connection: sqlite3.Connection, delta: Delta) -> Iterator[int]:
    """Of the facts that a delta is about, as they are before it or after it."""
    match delta:
        case TopicCreated():
            pass  # It has no facts before.
        case ProducerIdsReserved():
            yield facts.fact_digest("next_producer_id", int(_meta(connection, "next_producer_id")))
        case BrokerRegistered(broker):
            yield from map(facts.broker_digest, _brokers(connection, broker.node_id))
        case BrokerUnregistered(node_id):
            yield from map(facts.broker_digest, _brokers(connection, node_id))
            yield from _deleted_digests(connection, "held_by = ?", node_id)
        case FoldersRemoved(node_id, topic_ids):
            for each in topic_ids:
                yield from _deleted_digests(connection, "topic_id = ? AND held_by = ?", each.bytes, node_id)
        case BrokerConfigsChanged(name):
            for broker_name, configs in _broker_configs(connection, name).items():
                yield facts.broker_configs_digest(broker_name, configs)
        case AclsChanged(added, removed):
            yield from (facts.acl_digest(acl) for acl in (*added, *removed) if _has_acl(connection, acl))
        case UserChanged(name):
            for user, credentials in _users(connection, name).items():
                yield facts.user_digest(user, credentials)
        case ClientQuotasChanged(changed):
            for entity in changed:
                for found, quotas in _client_quotas(connection, entity).items():
                    yield facts.client_quotas_digest(found, quotas)
        case TopicDeleted(topic_id, _, gone):
            for each in {topic_id, *gone}:
                yield from _deleted_digests(connection, "topic_id = ?", each.bytes)
            yield from _topic_digests(connection, topic_id)
        case PartitionsAdded(topic_id) | PartitionsChanged(topic_id) | TopicConfigsChanged(topic_id):
            yield from _topic_digests(connection, topic_id)


def _topic_digests(connection: sqlite3.Connection, topic_id: UUID) -> Iterator[int]:
    """That of the topic of this id, if there is one."""
    row = connection.execute(
        "SELECT topic_id, name, configs FROM topics WHERE topic_id = ?", (topic_id.bytes,)
    ).fetchone()
    if row is not None:
        rows = connection.execute(f"{_PARTITIONS} ORDER BY partition", (topic_id.bytes,))
        yield facts.topic_digest(
            facts.topic_from(row[1], topic_id, _partitions(list(rows)), json.loads(row[2]))
        )


def _deleted_digests(connection: sqlite3.Connection, which: str, *values: object) -> Iterator[int]:
    rows = connection.execute(f"SELECT topic_id, held_by FROM deleted_topics WHERE {which}", values)
    for topic_id, held_by in rows.fetchall():
        yield facts.deleted_digest(UUID(bytes=topic_id), facts.whole_number(held_by))


def _deleted(connection: sqlite3.Connection) -> dict[UUID, set[int]]:
    deleted: dict[UUID, set[int]] = {}
    for topic_id, held_by in connection.execute("SELECT topic_id, held_by FROM deleted_topics"):
        deleted.setdefault(UUID(bytes=topic_id), set()).add(facts.whole_number(held_by))
    return deleted


def _image(connection: sqlite3.Connection) -> facts.StoredCluster:
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    rows: dict[bytes, list[Any]] = {}
    for topic_id, *row in connection.execute(
        f"SELECT topic_id, {_PARTITION} FROM partitions ORDER BY topic_id, partition"
    ):
        rows.setdefault(topic_id, []).append(row)
    topics = [
        facts.topic_from(name, UUID(bytes=topic_id), _partitions(rows.pop(topic_id, [])), json.loads(configs))
        for topic_id, name, configs in connection.execute(
            "SELECT topic_id, name, configs FROM topics ORDER BY sequence"
        )
    ]
    if rows:
        raise ValueError(f"{len(rows)} topics have partitions and no row of their own")
    catalog = Catalog(
        facts.text_of(meta["cluster_id"]),
        topics,
        facts.whole_number(int(meta["next_producer_id"])),
        facts.whole_number(int(meta["revision"])),
        _deleted(connection),
        _brokers(connection),
        _broker_configs(connection),
        map(facts.acl_from, map(list, connection.execute(f"SELECT {_ACL_COLUMNS} FROM acls"))),
        _users(connection),
        _client_quotas(connection),
    )
    return facts.StoredCluster(catalog, facts.whole_number(int(meta["node_id"])))


def _rows(
    connection: sqlite3.Connection, table: str, key: str, value: str, one: int | str | None
) -> list[tuple[Any, Any]]:
    """Key and value of all rows, in the order of the keys, or of the row of one key if there is one."""
    which = "" if one is None else f"WHERE {key} = ?"
    rows = connection.execute(
        f"SELECT {key}, {value} FROM {table} {which} ORDER BY {key}", () if one is None else (one,)
    )
    return rows.fetchall()


def _brokers(connection: sqlite3.Connection, node_id: int | None = None) -> Iterator[BrokerRegistration]:
    """All brokers, or the one of this id if it exists. Raises ValueError."""
    for found, registration in _rows(connection, "brokers", "node_id", "registration", node_id):
        broker = facts.broker_of(facts.decoded(registration))
        if broker.node_id != found:
            raise ValueError(f"the row of broker {found} is of broker {broker.node_id}")
        yield broker


def _broker_configs(connection: sqlite3.Connection, broker: str | None = None) -> dict[str, dict[str, str]]:
    """The changed settings of all brokers, or of the one of this name. Raises ValueError."""
    rows = _rows(connection, "broker_configs", "broker", "configs", broker)
    return {name: facts.configs_from(json.loads(configs)) for name, configs in rows}


def _has_acl(connection: sqlite3.Connection, acl: Acl) -> bool:
    which = f"SELECT 1 FROM acls WHERE ({_ACL_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?)"
    return connection.execute(which, acl).fetchone() is not None


def _users(
    connection: sqlite3.Connection, name: str | None = None
) -> dict[str, dict[ScramMechanism, ScramCredential]]:
    """All users, or the one of this name if it exists. Raises ValueError."""
    rows = _rows(connection, "users", "name", "credentials", name)
    return {facts.user_name(user): facts.credentials_from(json.loads(held)) for user, held in rows}


def _client_quotas(
    connection: sqlite3.Connection, entity: QuotaEntity | None = None
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of every entity that has some, or only of this one."""
    one = None if entity is None else facts.encoded(entity)
    return {
        facts.quota_entity_from(json.loads(of)): facts.quotas_from(json.loads(quotas))
        for of, quotas in _rows(connection, "client_quotas", "entity", "quotas", one)
    }


def _partitions(rows: Sequence[Any]) -> tuple[PartitionAssignment, ...]:
    """Of the rows of one topic, in order. Raises ValueError if one is missing or no assignment."""
    if [row[0] for row in rows] != list(range(len(rows))):
        raise ValueError(f"the numbers of {len(rows)} partitions are not 0 to {len(rows) - 1}")
    return tuple(_assignment(*row[1:]) for row in rows)


@lru_cache(maxsize=64)
def _assignment(
    leader_id: object,
    leader_epoch: object,
    replicas: str,
    isr: str,
    partition_epoch: object,
    elr: str,
    adding: str,
    removing: str,
) -> PartitionAssignment:
    held, in_sync, eligible, added, removed = map(json.loads, (replicas, isr, elr, adding, removing))
    return facts.partition_from(
        leader_id, leader_epoch, held, in_sync, partition_epoch, eligible, added, removed
    )


def _meta(connection: sqlite3.Connection, key: str) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise ValueError(f"no {key} is in it")
    return facts.text_of(row[0])


def _set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))


def _digest(connection: sqlite3.Connection) -> int:
    return int(_meta(connection, "digest"), 16)


def _write(connection: sqlite3.Connection, delta: Delta) -> None:
    match delta:
        case BrokerRegistered(broker):
            connection.execute(
                "INSERT OR REPLACE INTO brokers VALUES (?, ?)",
                (broker.node_id, facts.encoded(facts.broker_fields(broker))),
            )
        case BrokerUnregistered(node_id):
            connection.execute("DELETE FROM brokers WHERE node_id = ?", (node_id,))
            connection.execute("DELETE FROM deleted_topics WHERE held_by = ?", (node_id,))
        case TopicCreated(topic):
            connection.execute(
                "INSERT INTO topics (topic_id, name, configs) VALUES (?, ?, ?)",
                (topic.topic_id.bytes, topic.name, facts.encoded(dict(topic.configs))),
            )
            _insert_partitions(connection, topic.topic_id, 0, topic.partitions)
        case TopicDeleted(topic_id, held_by, gone, gone_from):
            connection.execute("DELETE FROM topics WHERE topic_id = ?", (topic_id.bytes,))
            connection.execute("DELETE FROM partitions WHERE topic_id = ?", (topic_id.bytes,))
            _insert_deleted(connection, topic_id, held_by)
            _write(connection, FoldersRemoved(gone_from, gone))
        case FoldersRemoved(node_id, topic_ids):
            connection.executemany(
                "DELETE FROM deleted_topics WHERE topic_id = ? AND held_by = ?",
                [(each.bytes, node_id) for each in topic_ids],
            )
        case PartitionsAdded(topic_id, partitions):
            (present,) = connection.execute(
                "SELECT count(*) FROM partitions WHERE topic_id = ?", (topic_id.bytes,)
            ).fetchone()
            _insert_partitions(connection, topic_id, present, partitions)
        case PartitionsChanged(topic_id, changed):
            connection.executemany(
                "UPDATE partitions SET leader_id = ?, leader_epoch = ?, replicas = ?, isr = ?, "
                "partition_epoch = ?, elr = ?, adding = ?, removing = ? WHERE topic_id = ? AND partition = ?",
                [(*_columns(assigned), topic_id.bytes, index) for index, assigned in changed.items()],
            )
        case TopicConfigsChanged(topic_id, configs):
            connection.execute(
                "UPDATE topics SET configs = ? WHERE topic_id = ?",
                (facts.encoded(dict(configs)), topic_id.bytes),
            )
        case BrokerConfigsChanged(broker_name, configs):
            _replace(connection, "broker_configs", "broker", broker_name, dict(configs))
        case AclsChanged(added, removed):
            which = f"DELETE FROM acls WHERE ({_ACL_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?)"
            connection.executemany(which, removed)
            connection.executemany("INSERT INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)", added)
        case UserChanged(user, credentials):
            _replace(connection, "users", "name", user, facts.credentials_fields(credentials))
        case ClientQuotasChanged(changed):
            for entity, quotas in changed.items():
                _replace(connection, "client_quotas", "entity", facts.encoded(entity), dict(quotas))
        case ProducerIdsReserved(next_producer_id):
            _set_meta(connection, "next_producer_id", str(next_producer_id))


def _replace(connection: sqlite3.Connection, table: str, key: str, name: str, value: object) -> None:
    """Write the row of this key anew, or only remove it where nothing is left of its value."""
    connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))
    if value:
        connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (name, facts.encoded(value)))


def _insert_deleted(connection: sqlite3.Connection, topic_id: UUID, held_by: Iterable[int]) -> None:
    rows = [(topic_id.bytes, node_id) for node_id in held_by]
    connection.executemany("INSERT INTO deleted_topics VALUES (?, ?)", rows)


def _insert_partitions(
    connection: sqlite3.Connection, topic_id: UUID, first: int, partitions: Sequence[PartitionAssignment]
) -> None:
    connection.executemany(
        "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(topic_id.bytes, first + index, *_columns(assigned)) for index, assigned in enumerate(partitions)],
    )


@lru_cache(maxsize=64)
def _columns(assigned: PartitionAssignment) -> Sequence[object]:
    return [each if isinstance(each, int) else facts.encoded(each) for each in assigned]
