"""The SQLite store: what was committed is there after a restart, all or none, and to nobody else."""

import sqlite3
from pathlib import Path

import pytest

from tests.unit.broker.cluster.stores import topic
from tidelog.broker.cluster.catalog import (
    Topic,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError


async def test_a_commit_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=1)
    await store.load()
    with pytest.raises(StoreError, match="cannot be used"):
        await store.commit([TopicCreated(topic("a")), TopicCreated(topic("a"))], 0)
    loaded = await store.load()
    assert (len(loaded), loaded.revision) == (0, 0)
    await store.close()


async def test_the_cluster_id_is_drawn_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=1)
    cluster_id = (await store.load()).cluster_id
    await store.close()
    assert len(cluster_id) == 22
    again = SqliteStore(tmp_path / "cluster.db", node_id=1, cluster_id=cluster_id)
    assert (await again.load()).cluster_id == cluster_id
    await again.close()


async def test_another_brokers_folder_is_refused_with_advice(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=1, cluster_id="mine")
    await store.load()
    await store.close()
    for other in (
        SqliteStore(tmp_path / "cluster.db", node_id=2),
        SqliteStore(tmp_path / "cluster.db", node_id=1, cluster_id="theirs"),
    ):
        with pytest.raises(StoreError, match="or name another"):
            await other.load()
        await other.close()


async def test_a_file_that_is_no_store_is_named_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(b"not a database" * 100)
    store = SqliteStore(path, node_id=1)
    with pytest.raises(StoreError, match=r"damaged.*rebuild-catalog"):
        await store.load()
    await store.close()


async def test_a_file_that_another_program_uses_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.broker.cluster.sqlite_file._LOCK_SECONDS", 0.0)
    first, second = (SqliteStore(tmp_path / "cluster.db", node_id=1) for _ in range(2))
    await first.load()
    with pytest.raises(StoreError, match="Close other programs that use it"):
        await second.load()
    await first.close()
    await second.load()
    await second.close()


async def test_commits_are_durable_when_they_return(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=1)
    await store.load()
    assert store._connection is not None
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()
    with sqlite3.connect(tmp_path / "cluster.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def blocks(folder: Path) -> int:
    return sum(path.stat().st_blocks for path in folder.iterdir())


async def test_a_topic_is_deleted_within_the_space_that_the_store_reserves(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "cluster.db", node_id=1)
    await store.load()
    many = [topic(f"t{number}", 500) for number in range(6)]
    for revision, made in enumerate(many):
        await store.commit([TopicCreated(made)], revision)
    await store.close()
    closed = blocks(tmp_path)
    await store_deletes(tmp_path, many[:3], 6, closed)
    await store_deletes(tmp_path, many[3:], 9, closed)


async def store_deletes(folder: Path, topics: list[Topic], revision: int, most_blocks: int) -> None:
    """A store that is opened, changed and closed takes no block more than it had closed."""
    store = SqliteStore(folder / "cluster.db", node_id=1)
    await store.load()
    for number, gone in enumerate(topics):
        await store.commit([TopicDeleted(gone.topic_id)], revision + number)
        assert blocks(folder) <= most_blocks
    await store.close()
    assert blocks(folder) <= most_blocks
