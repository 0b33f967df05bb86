"""A catalog made of the folders: all topics with ids and partitions, and what cannot be known is said."""

import asyncio
import shutil
import sqlite3
from pathlib import Path
from uuid import uuid4

import pytest

from tests.unit.broker.replicas.test_log_cleaner import fill, values
from tests.unit.broker.replicas.test_log_cleaner import topic as compacted_topic
from tests.unit.broker.replicas.test_ownership import catalog_files, forget, with_records, write_as
from tests.unit.broker.test_services import lose_the_store, opened, stored
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, Topic
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.data_folder.catalog_rebuilding import CatalogRebuilding, Rebuilt
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.storage.checkpoints import META_PROPERTIES, PARTITION_METADATA, write_topic_id
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.cli.app import run_command

WRITERS = 12
Known = tuple[str, dict[str, Topic]]


async def made(folder: Path) -> Known:
    """A folder with records of two topics, one with settings; its cluster id and topics."""
    services = await opened(folder)
    await services.topics.create("plain")
    await services.topics.create("set", NewTopic(num_partitions=3, configs={"retention.ms": "-1"}))
    gone = await services.topics.create("gone")
    await services.topics.delete(gone.topic_id)
    for name in ("plain", "set"):
        await stored(services, b"v", topic=name)
    for producer_id in [await services.producer_ids.next() for _ in range(WRITERS)]:
        await write_as(services, producer_id, "plain")
    known = {topic.name: topic for topic in services.catalog.topics()}
    cluster_id = services.catalog.cluster_id
    await services.close()
    return cluster_id, known


def planned(folder: Path, **more: int | str) -> Rebuilt:
    cluster_id, node_id = more.get("cluster_id"), more.get("node_id")
    return CatalogRebuilding(folder).plan(
        cluster_id=str(cluster_id) if cluster_id else None, node_id=int(node_id) if node_id else None
    )


def rebuilt(folder: Path) -> Rebuilt:
    rebuilding = CatalogRebuilding(folder)
    plan = rebuilding.plan()
    rebuilding.write(plan)
    return plan


async def served(folder: Path) -> Known:
    services = await opened(folder)
    topics = {topic.name: topic for topic in services.catalog.topics()}
    for topic in topics.values():
        assert all((topic.name, index) in services.replicas for index in range(len(topic.partitions)))
        await stored(services, b"more", topic=topic.name)
    await services.close()
    return services.catalog.cluster_id, topics


def spoil(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"\xff" + (folder / name).read_bytes()[1:])


async def test_a_catalog_that_is_gone_is_made_of_the_folders_alone(tmp_path: Path) -> None:
    cluster_id, known = await made(tmp_path)
    lose_the_store(tmp_path)
    plan = rebuilt(tmp_path)
    assert plan.is_needed
    assert plan.cluster.catalog.next_producer_id == above_all_issued(WRITERS - 1)
    assert {note.split(":")[0] for note in plan.notes if "settings" in note} == {"plain", "set"}
    assert any("users, ACLs, quotas" in note for note in plan.notes)
    found_id, topics = await served(tmp_path)
    assert found_id == cluster_id
    assert {name: (topic.topic_id, topic.partitions) for name, topic in topics.items()} == {
        name: (topic.topic_id, topic.partitions) for name, topic in known.items()
    }


async def test_the_offsets_topic_is_made_again_as_compacted_so_that_no_retention_takes_its_records(
    tmp_path: Path,
) -> None:
    services = await opened(tmp_path)
    await services.groups.make_topic()
    await services.close()
    lose_the_store(tmp_path)
    rebuilt(tmp_path)
    _, topics = await served(tmp_path)
    assert topics[OFFSETS_TOPIC].configs["cleanup.policy"] == "compact"
    assert len(topics[OFFSETS_TOPIC].partitions) == 5


async def test_a_compacted_folder_is_whole_for_a_rebuilt_catalog(tmp_path: Path) -> None:
    """Its offsets have gaps. That the topic is compacted is lost with the catalog, and said."""
    services = await opened(tmp_path)
    replica = await compacted_topic(services, "latest")
    await fill(services, replica, 3)
    assert await services.cleaner.clean_dirtiest()
    left, end_offset = values(replica), replica.log.end_offset
    assert len(left) < end_offset
    producer_id = await services.producer_ids.next()
    await services.close()
    lose_the_store(tmp_path)
    plan = rebuilt(tmp_path)
    assert any(note.startswith("latest:") and "settings" in note for note in plan.notes)
    assert plan.cluster.catalog.next_producer_id > producer_id
    services = await opened(tmp_path)
    again = services.replicas["latest", 0]
    assert (values(again), again.log.end_offset, again.log.holes) == (left, end_offset, [])
    await services.close()


async def test_what_is_left_of_the_old_catalog_gives_the_settings(tmp_path: Path) -> None:
    _, known = await made(tmp_path)
    spoil(tmp_path, "cluster.db")
    data = bytearray((tmp_path / "cluster.copy").read_bytes())
    last = data.rstrip(b"\0").rfind(b"\n", 0, len(data.rstrip(b"\0")) - 1)
    data[last + 20] ^= 1
    (tmp_path / "cluster.copy").write_bytes(data)
    plan = rebuilt(tmp_path)
    assert not [note for note in plan.notes if "settings" in note]
    assert sorted(plan.kept) == ["cluster.copy.kept-1", "cluster.db.kept-1"]
    _, topics = await served(tmp_path)
    assert topics == known


async def test_folders_that_an_older_catalog_does_not_know_are_added(tmp_path: Path) -> None:
    await with_records(tmp_path, "old")
    backup = catalog_files(tmp_path)
    _, known = await made(tmp_path)
    forget(tmp_path, backup)
    rebuilt(tmp_path)
    _, topics = await served(tmp_path)
    assert sorted(topics) == ["old", "plain", "set"]
    assert topics["old"] == known["old"]


async def test_a_catalog_that_is_whole_and_knows_all_needs_no_other(tmp_path: Path) -> None:
    await made(tmp_path)
    assert not planned(tmp_path).is_needed
    (tmp_path / "cluster.db").unlink()
    assert not planned(tmp_path).is_needed


async def test_a_folder_of_a_deleted_topic_does_not_bring_it_back(tmp_path: Path) -> None:
    await with_records(tmp_path, "t")
    shutil.copytree(tmp_path / "t-0", tmp_path / "kept")
    services = await opened(tmp_path)
    topic = services.catalog.topic("t")
    assert topic is not None
    await services.topics.delete(topic.topic_id)
    await services.close()
    (tmp_path / "kept").rename(tmp_path / "t-0")
    spoil(tmp_path, "cluster.copy")
    assert not len(planned(tmp_path).cluster.catalog)
    assert not planned(tmp_path).is_needed


async def test_folders_of_one_topic_with_two_ids_are_not_guessed_about(tmp_path: Path) -> None:
    await made(tmp_path)
    lose_the_store(tmp_path)
    write_topic_id(Disk(), tmp_path / "set-1", uuid4())
    with pytest.raises(DataFolderError, match=r"topic set have different topic ids .*set-0, set-2"):
        planned(tmp_path)


async def test_partitions_and_ids_that_are_missing_are_said(tmp_path: Path) -> None:
    _, known = await made(tmp_path)
    lose_the_store(tmp_path)
    shutil.rmtree(tmp_path / "set-1")
    (tmp_path / "set-0" / PARTITION_METADATA).unlink()
    plan = planned(tmp_path)
    found = plan.cluster.catalog.topic("set")
    assert found is not None
    assert (found.topic_id, len(found.partitions)) == (known["set"].topic_id, 3)
    assert [note for note in plan.notes if "partitions [1] have no folder" in note]
    assert [note for note in plan.notes if note.startswith("set-0: no topic id can be read")]


async def test_a_folder_without_any_identity_takes_the_one_that_is_given(tmp_path: Path) -> None:
    await made(tmp_path)
    lose_the_store(tmp_path)
    (tmp_path / META_PROPERTIES).unlink()
    plan = planned(tmp_path, cluster_id="mine", node_id=7)
    assert (plan.cluster.catalog.cluster_id, plan.cluster.node_id) == ("mine", 7)
    assert [note for note in planned(tmp_path).notes if "gets a new one" in note]


async def test_a_catalog_of_another_release_is_left_out_and_said(tmp_path: Path) -> None:
    await made(tmp_path)
    connection = sqlite3.connect(tmp_path / "cluster.db")
    connection.execute("PRAGMA user_version=9")
    connection.close()
    plan = planned(tmp_path)
    assert plan.is_needed
    assert [note for note in plan.notes if "got 9" in note]


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(run_command, ["storage", "rebuild-catalog", *arguments])


async def test_the_command_shows_asks_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster_id, known = await made(tmp_path)
    lose_the_store(tmp_path)
    capsys.readouterr()
    assert await command(str(tmp_path), "--dry-run") == 0
    shown = capsys.readouterr().out
    assert f"cluster.id {cluster_id}" in shown
    assert f"topic set  id {known['set'].topic_id}  partitions 3" in shown
    assert await command(str(tmp_path)) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "cluster.db").exists()
    assert await command(str(tmp_path), "--yes") == 0
    assert await command(str(tmp_path), "--yes") == 0
    assert "there is nothing to do" in capsys.readouterr().out
    assert set((await served(tmp_path))[1]) == set(known)


async def test_the_command_leaves_a_running_broker_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = await opened(tmp_path)
    assert await command(str(tmp_path), "--yes") == 1
    assert capsys.readouterr().err == f"error: a broker is using {tmp_path}; stop it first\n"
    await services.close()
    assert await command(str(tmp_path / "nowhere")) == 1
    assert capsys.readouterr().err.endswith("is not a folder\n")
