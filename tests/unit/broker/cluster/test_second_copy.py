"""The copy of the catalog: it holds each commit before it returns, and is used where it is the newest."""

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from crc32c import crc32c

from tests.unit.broker.cluster.stores import (
    COPY,
    DATABASE,
    LOG,
    acl,
    broker,
    commit,
    facts_of,
    led_anew,
    loaded,
    topic,
    user,
)
from tidelog.broker.cluster.catalog import (
    NOBODY,
    AclsChanged,
    BrokerConfigsChanged,
    BrokerRegistered,
    BrokerRegistration,
    BrokerUnregistered,
    Catalog,
    Delta,
    FoldersRemoved,
    PartitionAssignment,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.cluster.facts import broker_fields, decoded, delta_fields, delta_of, encoded
from tidelog.broker.cluster.placement import assign
from tidelog.broker.cluster.second_copy import read_copy
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError
from tidelog.protocol.scram import ScramMechanism


async def begun(folder: Path) -> tuple[SqliteStore, Catalog]:
    store = SqliteStore(folder / DATABASE, node_id=1)
    return store, await store.load()


def is_held(folder: Path, catalog: Catalog) -> bool:
    copied = read_copy(folder / COPY).cluster
    return copied is not None and facts_of(copied.catalog) == facts_of(catalog)


def failing_writes(monkeypatch: pytest.MonkeyPatch, code: int) -> Callable[[], None]:
    """Let what writes more of the copy than a mark fail, until the answer is called."""

    def fail(fd: int, data: bytes, position: int) -> None:
        if len(data) > 8:
            raise OSError(code, "the disk")
        os.pwrite(fd, data, position)

    monkeypatch.setattr("tidelog.broker.cluster.second_copy.write_bytes", fail)
    return monkeypatch.undo


async def test_a_commit_is_in_the_copy_when_it_returns(tmp_path: Path) -> None:
    store, catalog = await begun(tmp_path)
    assert is_held(tmp_path, catalog)
    first, second = topic("a"), topic("b", 3)
    deltas: list[Delta] = [
        TopicCreated(first),
        TopicCreated(second),
        ProducerIdsReserved(1000),
        TopicConfigsChanged(first.topic_id, {}),
        PartitionsAdded(second.topic_id, assign(2, [1])),
        broker(1, 9092),
        led_anew(second, 0, 2),
        BrokerRegistered(
            BrokerRegistration(2, (), uuid4(), uuid4(), "r", is_fenced=True, offline=((uuid4(), 1),))
        ),
        broker(1, 9092, 9093),
        TopicDeleted(first.topic_id, (1, 2)),
        TopicDeleted(second.topic_id, (1, 2), (first.topic_id,), 1),
        FoldersRemoved(2, (first.topic_id, second.topic_id)),
        BrokerUnregistered(1),
    ]
    for delta in deltas:
        await commit(store, catalog, delta)
        assert is_held(tmp_path, catalog)
    await commit(store, catalog, TopicCreated(topic("c")), ProducerIdsReserved(2000))
    assert is_held(tmp_path, catalog)
    await store.close()


async def test_a_full_copy_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.broker.cluster.second_copy.ROOM_BYTES", 300)
    store, catalog = await begun(tmp_path)
    sizes = set()
    for number in range(40):
        await commit(store, catalog, TopicCreated(topic(f"t{number}")))
        assert is_held(tmp_path, catalog)
        sizes.add((tmp_path / COPY).stat().st_size)
    # Its room grows with it, so that what is written in all is linear.
    assert 3 < len(sizes) < 15
    await store.close()


async def test_a_full_disk_takes_the_copy_and_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, catalog = await begun(tmp_path)
    await commit(store, catalog, TopicCreated(topic("a")))
    there_is_room = failing_writes(monkeypatch, errno.ENOSPC)
    await commit(store, catalog, TopicCreated(topic("b")))
    assert "cluster_copy_given_up" in capsys.readouterr().out
    assert read_copy(tmp_path / COPY).problem
    assert not (tmp_path / f"{COPY}.tmp").exists()
    await store.close()
    # Also after a crash: it was not a bad disk that took the copy.
    store = SqliteStore(tmp_path / DATABASE, node_id=1, was_clean=False)
    assert facts_of(await store.load()) == facts_of(catalog)
    there_is_room()
    await commit(store, catalog, TopicCreated(topic("c")))
    assert is_held(tmp_path, catalog)
    await store.close()


async def test_a_copy_that_the_disk_refused_leaves_a_commit_in_doubt_until_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, catalog = await begun(tmp_path)
    disk_is_back = failing_writes(monkeypatch, errno.EIO)
    created = TopicCreated(topic("a"))
    with pytest.raises(OSError, match="the disk"):
        await store.commit([created], 0)
    with pytest.raises(OSError, match="the disk"):
        await store.load()
    disk_is_back()
    catalog.apply(created)
    assert facts_of(await store.load()) == facts_of(catalog)
    assert is_held(tmp_path, catalog)
    await store.close()


async def test_what_was_committed_and_not_copied_when_the_process_died_is_copied_at_the_start(
    tmp_path: Path,
) -> None:
    store, catalog = await begun(tmp_path)
    before = (tmp_path / COPY).read_bytes()
    await commit(store, catalog, TopicCreated(topic("a")))
    await store.close()
    (tmp_path / COPY).write_bytes(before)
    store, found = await begun(tmp_path)
    assert facts_of(found) == facts_of(catalog)
    assert is_held(tmp_path, catalog)
    assert store.is_newest
    await store.close()


async def test_any_part_of_the_last_line_may_be_missing_after_a_power_cut(tmp_path: Path) -> None:
    store, catalog = await begun(tmp_path / "before")
    await commit(store, catalog, TopicCreated(topic("a")))
    before = (tmp_path / "before" / COPY).read_bytes()
    await commit(store, catalog, TopicCreated(topic("b", 300)))
    after = (tmp_path / "before" / COPY).read_bytes()
    await store.close()
    first, end = len(before.rstrip(b"\0")), len(after.rstrip(b"\0"))
    for start, stop in ((first, end - 9), (first + 20, end - 20), (first + 20, end)):
        shutil.copytree(tmp_path / "before", tmp_path / "cut", dirs_exist_ok=True)
        (tmp_path / "cut" / COPY).write_bytes(after[:start] + bytes(stop - start) + after[stop:])
        cut = SqliteStore(tmp_path / "cut" / DATABASE, node_id=1, was_clean=False)
        assert facts_of(await cut.load()) == facts_of(catalog)
        await cut.close()


async def test_an_older_sqlite_file_is_replaced_by_the_copy_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, catalog = await begun(tmp_path)
    await store.close()
    older = (tmp_path / DATABASE).read_bytes()
    store, catalog = await begun(tmp_path)
    await commit(store, catalog, TopicCreated(topic("a")))
    await store.close()
    (tmp_path / DATABASE).write_bytes(older)
    assert await loaded(tmp_path) == facts_of(catalog)
    told = capsys.readouterr().out
    assert "cluster_store_restored" in told
    assert "kept_as=cluster.db.kept-1" in told
    assert (tmp_path / "cluster.db.kept-1").exists()


async def test_without_a_copy_the_catalog_may_not_be_the_newest(tmp_path: Path) -> None:
    store, _ = await begun(tmp_path)
    assert store.is_newest
    await store.close()
    (tmp_path / COPY).unlink()
    store, _ = await begun(tmp_path)
    assert not store.is_newest
    await store.close()
    store, _ = await begun(tmp_path)
    assert store.is_newest
    await store.close()


@pytest.mark.parametrize(
    ("cluster_id", "refusal"),
    [(None, "move away the one that does not belong here"), ("same", "both whole at revision 1 and differ")],
)
async def test_two_clusters_and_two_histories_of_one_are_refused(
    tmp_path: Path, cluster_id: str | None, refusal: str
) -> None:
    for name in ("one", "other"):
        store = SqliteStore(tmp_path / name / DATABASE, node_id=1, cluster_id=cluster_id)
        await commit(store, await store.load(), TopicCreated(topic(name)))
        await store.close()
    (tmp_path / "other" / COPY).replace(tmp_path / "one" / COPY)
    store = SqliteStore(tmp_path / "one" / DATABASE, node_id=1)
    with pytest.raises(StoreError, match=refusal):
        await store.load()
    await store.close()


A_BROKER = broker_fields(BrokerRegistration(1, ()))


def line_of(fields: object) -> bytes:
    text = encoded(fields).encode()
    return b"%08x %s\n" % (crc32c(text), text)


@pytest.mark.parametrize("schema_version", [1, 5, 7])
async def test_a_catalog_of_another_schema_version_is_refused_and_left_as_it_is(
    tmp_path: Path, schema_version: int
) -> None:
    store, _ = await begun(tmp_path)
    await store.close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute(f"PRAGMA user_version={schema_version}")
    connection.close()
    before = (tmp_path / COPY).read_bytes()
    store = SqliteStore(tmp_path / DATABASE, node_id=1)
    with pytest.raises(StoreError, match=f"expected schema version 6 of the catalog, got {schema_version}"):
        await store.load()
    await store.close()
    assert (tmp_path / COPY).read_bytes() == before


async def test_a_copy_of_another_format_counts_as_damaged(tmp_path: Path) -> None:
    store, catalog = await begun(tmp_path)
    await store.close()
    first, zeros = (tmp_path / COPY).read_bytes().split(b"\n", 1)
    (tmp_path / COPY).write_bytes(line_of({**decoded(first[9:]), "format": 3}) + zeros)
    assert "expected format 5, got 3" in read_copy(tmp_path / COPY).problem
    assert await loaded(tmp_path) == facts_of(catalog)
    assert not read_copy(tmp_path / COPY).problem


async def test_only_the_broker_s_user_may_read_the_files_because_they_hold_keys(tmp_path: Path) -> None:
    store, catalog = await begun(tmp_path)
    await commit(store, catalog, user("alice", *ScramMechanism))
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in (DATABASE, LOG, COPY)} == {0o600}
    await store.close()
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in (DATABASE, LOG, COPY)} == {0o600}


@pytest.mark.parametrize(
    "delta",
    [
        TopicCreated(topic("a", 10_000)),
        PartitionsAdded(
            uuid4(),
            (
                PartitionAssignment(-1, 2, (1, 2), (), 7, (2,), (1,), (2,)),
                PartitionAssignment(2, 0, (2,), (2,)),
            ),
        ),
        TopicDeleted(uuid4(), (1, 2), (uuid4(), uuid4()), 1),
        FoldersRemoved(2, (uuid4(),)),
        BrokerUnregistered(2),
        BrokerRegistered(BrokerRegistration(7, (), uuid4(), uuid4(), "r", is_fenced=True)),
        BrokerRegistered(BrokerRegistration(7, (), is_stopping=True, others='{"new":[1,null]}')),
        TopicConfigsChanged(uuid4(), {"b": "2", "a": "ü\n"}),
        BrokerConfigsChanged("", {"b": "2", "a": "ü\n"}),
        led_anew(topic("a", 3), 0, 2),
        user("ü,=", ScramMechanism.SCRAM_SHA_256),
        user("gone"),
        user(NOBODY, ScramMechanism.SCRAM_SHA_256),
        broker(7, 9092, 9093),
        AclsChanged((acl("User:ü"),), (acl("User:bob", "prefix-"),)),
        ProducerIdsReserved(2**63 - 1),
    ],
)
def test_what_is_decoded_equals_what_was_encoded(delta: Delta) -> None:
    text = encoded(delta_fields(delta))
    assert delta_of(decoded(text)) == delta
    assert len(text) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"created": {"name": "a", "id": "0", "partitions": [], "configs": {}}},
        {
            "created": {
                "name": "a/b",
                "id": uuid4().hex,
                "partitions": [[1, 0, [1], [1], 0, [], [], [], 1]],
                "configs": {},
            }
        },
        {"grown": uuid4().hex, "partitions": [[3, 0, [1], [1], 0, [], [], [], 1]]},
        {"grown": uuid4().hex, "partitions": [[1, -1, [1], [1], 0, [], [], [], 1]]},
        {"grown": uuid4().hex, "partitions": [[1, 0, [], [], 0, [], [], [], 1]]},
        {"grown": uuid4().hex, "partitions": [[1, 0, [1], [2], 0, [], [], [], 1]]},
        {"configured": uuid4().hex, "configs": {"a": 1}},
        {"changed": uuid4().hex, "partitions": [[-1, 1, 0, [1], [1], 0, [], [], []]]},
        {"changed": uuid4().hex, "partitions": [[0, 1, 0, [2], [2], 0, [], [], []]]},
        *(
            {"changed": uuid4().hex, "partitions": [[0, 1, 0, [1], [1], *more]]}
            for more in ([], [-1, [], [], []], [0, [2], [], []], [0, [], [2], []], [0, [], [], [2]])
        ),
        {"changed": uuid4().hex, "partitions": {}},
        {"registered": {**A_BROKER, "id": -1}},
        {"registered": {**A_BROKER, "listeners": [["external", "h", 65536]]}},
        {"registered": {**A_BROKER, "listeners": [["", "h", 1]]}},
        {"registered": {**A_BROKER, "listeners": [["external", 1, 1]]}},
        {"registered": {**A_BROKER, "rack": 1}},
        {"registered": {**A_BROKER, "is_fenced": 1}},
        {"registered": {**A_BROKER, "incarnation": "1"}},
        {"unregistered": -1},
        {"deleted": uuid4().hex, "held_by": [-1], "gone": [], "gone_from": 1},
        {"folders_removed": ["x"], "from": 1},
        {"acls_added": [[2, 3, "t", "User:a", "*", 3]], "acls_removed": []},
        {"acls_added": [[2, 3, "t", "User:a", "*", 99, 3]], "acls_removed": []},
        {"acls_added": [[2, 3, "", "User:a", "*", 3, 3]], "acls_removed": []},
        {"acls_added": [], "acls_removed": {}},
        {"user": {"name": 1, "credentials": []}},
        {"user": {"name": "a", "credentials": [[3, "00", "00" * 32, "00" * 32, 4096]]}},
        {"user": {"name": "a", "credentials": [[1, "", "00" * 32, "00" * 32, 4096]]}},
        {"user": {"name": "a", "credentials": [[1, "00", "00" * 32, "00" * 31, 4096]]}},
        {"user": {"name": "a", "credentials": [[1, "00", "00" * 32, "00" * 32, -1]]}},
        {"user": {"name": "a", "credentials": [[1, "00", "zz", "00" * 32, 4096]]}},
        {"next_producer_id": -1},
        {"next_producer_id": True},
    ],
)
def test_what_is_no_delta_is_a_value_error(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        delta_of(json.loads(json.dumps(fields)))
