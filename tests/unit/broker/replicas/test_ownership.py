"""The catalog and the folders of partitions belong together, or the broker does not start."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.storage.support import flush
from tests.unit.broker.storage.test_manager import TOPIC_ID, create, kill, manager
from tests.unit.broker.test_services import batch, lose_the_store, opened, stored
from tidelog.broker.cluster.catalog import Catalog, PartitionAssignment, Topic
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.broker_settings import BrokerSettings
from tidelog.broker.configuration.topic_configs import TopicConfigs
from tidelog.broker.coordinator.producer_ids import above_all_issued
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.replicas.group_commit import GroupCommit
from tidelog.broker.replicas.ownership import (
    claim,
    ended_start,
    note_start,
    settle_strays,
    starts_of,
)
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.checkpoints import (
    LEADER_EPOCHS,
    META_PROPERTIES,
    FolderIdentity,
    write_topic_id,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import LOCK_FILE, DataFolderError
from tidelog.broker.storage.seen_producer_ids import highest_producer_id_in
from tidelog.protocol.types import Buffer


class Stuck(Disk):
    """Removes no folder of a deleted topic."""

    def rename(self, old: Path, new: Path) -> None:
        if new.name.endswith("-delete"):
            raise OSError(5, "Input/output error")
        super().rename(old, new)


class FullDisk(Disk):
    """Has no room for another byte or name."""

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def rename(self, old: Path, new: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make_directory(self, path: Path) -> None:
        if not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def with_records(folder: Path, *names: str) -> None:
    services = await opened(folder)
    for name in names:
        await services.topics.create(name)
        await stored(services, b"v", topic=name)
    await services.close()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file, but those that any start writes."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not name.startswith((".", "cluster."))}


def forget(folder: Path, backup: dict[str, bytes]) -> None:
    """Put back the catalog of a backup."""
    lose_the_store(folder)
    for name, data in backup.items():
        (folder / name).write_bytes(data)


def catalog_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("cluster.*")}


async def test_a_catalog_that_is_gone_is_not_taken_for_a_broker_that_begins(tmp_path: Path) -> None:
    await with_records(tmp_path)
    lose_the_store(tmp_path)
    with pytest.raises(StoreError, match=r"cluster\.db and its copy cluster\.copy are missing.*rebuild-"):
        await opened(tmp_path)
    assert not (tmp_path / STORE_FILE).exists()


async def test_records_of_partitions_that_the_catalog_does_not_know_keep_the_broker_from_starting(
    tmp_path: Path,
) -> None:
    await with_records(tmp_path, "old")
    backup = catalog_files(tmp_path)
    await with_records(tmp_path, "t", "n" * 249)
    forget(tmp_path, backup)
    before = tree(tmp_path)
    for _ in range(2):
        with pytest.raises(
            DataFolderError, match=rf"n{{249}}-0, t-0\. .*rebuild-catalog {tmp_path}`"
        ) as caught:
            await opened(tmp_path)
        assert "\n" not in str(caught.value)
        assert tree(tmp_path) == before


async def test_partitions_beyond_those_that_the_catalog_knows_keep_the_broker_from_starting(
    tmp_path: Path,
) -> None:
    await with_records(tmp_path, "t")
    backup = catalog_files(tmp_path)
    services = await opened(tmp_path)
    await services.topics.add_partitions("t", 3)
    services.replicas["t", 2].append_as_leader(batch(), NOW_MS)
    await services.close()
    forget(tmp_path, backup)
    with pytest.raises(DataFolderError, match=r"does not know: t-2\. "):
        await opened(tmp_path)


async def test_many_unknown_folders_are_counted_not_listed(tmp_path: Path) -> None:
    await with_records(tmp_path, "t")
    for number in range(30):
        shutil.copytree(tmp_path / "t-0", tmp_path / f"other-{number}")
    with pytest.raises(DataFolderError, match="and 25 more"):
        await opened(tmp_path)


@pytest.mark.parametrize("name", ["t", "n" * 249])
@pytest.mark.parametrize("clean", [True, False])
async def test_what_a_deletion_left_is_removed_by_the_next_start(
    tmp_path: Path, name: str, clean: bool
) -> None:
    services = await opened(tmp_path, disk=Stuck())
    topic = await services.topics.create(name)
    await stored(services, b"v", topic=name)
    await services.topics.delete(topic.topic_id)
    assert services.catalog.deleted.keys() == {topic.topic_id}
    await services.close(clean=clean)
    assert (tmp_path / f"{name}-0").exists()
    services = await opened(tmp_path)
    assert not (tmp_path / f"{name}-0").exists()
    await services.topics.create(name)
    assert services.replicas[name, 0].high_watermark == 0
    await services.close()


async def test_folders_that_no_topic_uses_keep_no_broker_from_starting_on_a_full_disk(tmp_path: Path) -> None:
    await with_records(tmp_path, "good", "known")
    services = await opened(tmp_path, disk=Stuck())
    topic = await services.topics.create("gone")
    await stored(services, b"v", topic="gone")
    await services.topics.delete(topic.topic_id)
    await services.close()
    write_topic_id(Disk(), tmp_path / "known-0", uuid4())
    services = await opened(tmp_path, disk=FullDisk())
    assert list(services.replicas) == [("good", 0)]
    assert services.replicas["good", 0].high_watermark == 1
    await services.close()
    assert [(tmp_path / name).exists() for name in ("gone-0", "known-0")] == [False, True]


async def test_a_deleted_topic_is_remembered_until_its_folders_are_gone_and_no_longer(tmp_path: Path) -> None:
    disk = Stuck()
    services = await opened(tmp_path, disk=disk)
    topics = [await services.topics.create(f"t{number}") for number in range(5)]
    await services.topics.delete(topics[0].topic_id)
    await services.topics.delete(topics[1].topic_id)
    assert services.catalog.deleted.keys() == {topics[0].topic_id, topics[1].topic_id}
    await services.close()
    services = await opened(tmp_path)
    for topic in topics[2:]:
        await services.topics.delete(topic.topic_id)
        assert services.catalog.deleted.keys() == {topic.topic_id} or topic is topics[2]
    assert services.catalog.deleted.keys() == {topics[4].topic_id}
    await services.close()


async def test_a_folder_names_its_cluster_and_takes_no_other_catalog(tmp_path: Path) -> None:
    for name in ("one", "other"):
        await with_records(tmp_path / name, "t")
    assert (tmp_path / "one" / META_PROPERTIES).read_text().startswith("version=1\ncluster.id=")
    forget(tmp_path / "one", catalog_files(tmp_path / "other"))
    with pytest.raises(
        DataFolderError, match=r"meta\.properties says .* set the data\.dir, node\.id and cluster\.store"
    ):
        await opened(tmp_path / "one")


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00", b"version=1\nnode.id=1\n", b"version=1\ncluster.id=a\n"]
)
async def test_a_damaged_meta_properties_is_written_again(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    await with_records(tmp_path, "t")
    before = (tmp_path / META_PROPERTIES).read_bytes()
    (tmp_path / META_PROPERTIES).write_bytes(content)
    await with_records(tmp_path)
    assert "meta_properties_damaged" in capsys.readouterr().out
    assert (tmp_path / META_PROPERTIES).read_bytes() == before


async def write_as(services: Services, producer_id: int, topic: str = "t") -> None:
    replica = services.replicas[topic, 0]
    replica.append_as_leader(batch(producer_id=producer_id, sequence=0), NOW_MS)
    await replica.committed(replica.log.end_offset)


def break_log(folder: Path) -> None:
    """Let the log be one that cannot be opened."""
    (folder / "t-0" / LEADER_EPOCHS).unlink()
    (folder / "t-0" / LEADER_EPOCHS).mkdir()


def rename_folder(folder: Path) -> None:
    """As earlier releases did with folders of unknown topics."""
    (folder / "t-0").rename(folder / "t-0.1234-stray")


def damage_front(folder: Path) -> None:
    for log in (folder / "t-0").glob("*.log"):
        log.write_bytes(b"\xff" * 20 + log.read_bytes()[20:])
    for snapshot in (folder / "t-0").glob("*.snapshot"):
        snapshot.unlink()


def leave(_: Path) -> None:
    """The log stays as it is: its producers have expired."""


@pytest.mark.parametrize("what", [leave, break_log, rename_folder, damage_front])
async def test_no_producer_id_that_any_folder_has_seen_is_given_again(
    tmp_path: Path, what: Callable[[Path], None]
) -> None:
    services = await opened(tmp_path, producer_id_unknown_sequence="accept")
    await services.topics.create("t", NewTopic(configs={"segment.bytes": "200"}))
    await services.close()
    backup = catalog_files(tmp_path)
    del backup["cluster.copy"]
    services = await opened(tmp_path, producer_id_unknown_sequence="accept")
    highest = 0
    for _ in range(4):
        highest = await services.producer_ids.next()
        await write_as(services, highest)
    for log in services.partitions.logs.logs.values():
        log.producers.expire(NOW_MS * 2)
    await services.close()
    forget(tmp_path, backup)
    what(tmp_path)
    services = await opened(tmp_path)
    assert services.producer_ids.bound() >= above_all_issued(highest)
    assert await services.producer_ids.next() > highest
    await services.close()


async def test_a_producer_that_never_wrote_keeps_its_id_to_itself_after_an_older_catalog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await with_records(tmp_path, "t")
    backup = catalog_files(tmp_path)
    del backup["cluster.copy"]
    services = await opened(tmp_path)
    silent = {await services.producer_ids.next() for _ in range(2500)}
    await services.close()
    forget(tmp_path, backup)
    services = await opened(tmp_path)
    assert "logs_read_for_producer_ids" in capsys.readouterr().out
    assert not silent & {await services.producer_ids.next() for _ in range(2500)}
    await services.close()


async def test_a_start_with_the_newest_catalog_reads_no_log_for_producer_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_records(tmp_path, "t")

    def fail(*_: Any) -> int:
        raise AssertionError("nothing was to be read")

    monkeypatch.setattr("tidelog.broker.opening.highest_producer_id_in", fail)
    await with_records(tmp_path)


def test_ids_behind_damage_are_seen_and_those_of_torn_batches_and_mirrors_are_not(tmp_path: Path) -> None:
    batches = [batch(b"x" * 300, producer_id=each, sequence=0) for each in (7, 40, 2**62 + 5, 90)]
    data = bytearray(b"".join(batches))
    data[8] = 0x7F  # The first batch's length.
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    assert highest_producer_id_in(Disk(), tmp_path) == 90
    path.write_bytes(data[:-1])
    assert highest_producer_id_in(Disk(), tmp_path) == 40
    path.write_bytes(b"\x02" * 5000)
    assert highest_producer_id_in(Disk(), tmp_path) == -1


def test_a_folder_keeps_its_id_and_the_starts_whose_registration_may_still_arrive(tmp_path: Path) -> None:
    disk, identity = Disk(), FolderIdentity("c", 1)
    incarnations = [uuid4() for _ in range(300)]
    first = starts_of(disk, tmp_path)
    note_start(disk, tmp_path, identity, first, None, incarnations[0])
    assert starts_of(disk, tmp_path)[:2] == (first.directory_id, (incarnations[0],))
    for each in incarnations[1:]:  # None of them reaches the catalog.
        note_start(disk, tmp_path, identity, starts_of(disk, tmp_path), incarnations[0], each)
    known = starts_of(disk, tmp_path).incarnations
    assert known[0] == incarnations[0]
    assert known[-1] == incarnations[-1]
    assert len(known) < 150
    # Once a later one is registered, the first goes, and those that an older catalog may name stay.
    note_start(disk, tmp_path, identity, starts_of(disk, tmp_path), incarnations[-2], uuid4())
    known = starts_of(disk, tmp_path).incarnations
    assert incarnations[0] not in known
    assert known[-51:-1] == tuple(incarnations[-50:])
    claim(disk, tmp_path, identity)
    assert starts_of(disk, tmp_path).directory_id == first.directory_id


@pytest.mark.parametrize("line", ["directory.id=!", "directory.id=AAAA\nbroker.incarnations=x"])
def test_a_folder_whose_id_cannot_be_read_is_another_one(tmp_path: Path, line: str) -> None:
    (tmp_path / META_PROPERTIES).write_text(f"version=1\ncluster.id=c\nnode.id=1\n{line}\n")
    assert starts_of(Disk(), tmp_path).incarnations == ()


async def test_an_empty_folder_that_a_creation_left_gives_way_to_the_topic_that_another_broker_created(
    tmp_path: Path,
) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t")
    await services.close()
    write_topic_id(Disk(), tmp_path / "t-0", uuid4())
    services = await opened(tmp_path)
    assert services.replicas["t", 0].high_watermark == 0
    await services.close()


@pytest.mark.parametrize(
    ("moved", "is_older"),
    [
        (PartitionAssignment(2, 4, (2,), (2,)), False),
        (PartitionAssignment(2, 3, (2,), (2,)), True),
        (PartitionAssignment(-1, 4, (2,), ()), True),
    ],
)
def test_a_folder_of_a_partition_that_was_moved_away_goes_unless_the_catalog_is_older(
    tmp_path: Path, moved: PartitionAssignment, is_older: bool
) -> None:
    logs = manager(tmp_path)
    log = create(logs, "t")
    log.append(batch(), 3, NOW_MS)
    flush(log)
    kill(logs)
    catalog = Catalog("c", [Topic("t", TOPIC_ID, (moved,))])
    logs = manager(tmp_path)
    settle_strays(logs, catalog)  # As one that has all partitions.
    with pytest.raises(DataFolderError) if is_older else nullcontext():
        settle_strays(logs, catalog, node_id=1)
    assert [found.topic for found in logs.found_partitions()] == ["t"] * is_older


async def test_the_epochs_of_a_log_count_if_the_catalog_does_not_know_who_is_in_sync(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = create(logs, "t")
    log.append(batch(), 7, NOW_MS)
    flush(log)
    kill(logs)
    (tmp_path / "t-0" / LEADER_EPOCHS).write_text("damaged")
    group_commit = GroupCommit(asyncio.get_running_loop())
    partitions = Partitions(
        manager(tmp_path),
        TopicConfigs(BrokerSettings(BrokerConfig(data_dir=tmp_path))),
        LogConfig,
        node_id=1,
        group_commit=group_commit,
        metrics=Metrics(),
        clock_ms=lambda: NOW_MS,
    )
    await partitions.open([(Topic("t", TOPIC_ID, (PartitionAssignment(-1, 4, (1, 2), ()),)), [0])])
    assert partitions.logs.logs["t", 0].leader_epoch_for(0) == 7
    await group_commit.close()
    partitions.logs.close()


def test_who_gets_the_lock_of_the_last_start_knows_that_it_has_ended_and_who_has_a_copy_does_not(
    tmp_path: Path,
) -> None:
    disk, folder, copy = Disk(), tmp_path / "data", tmp_path / "copy"
    folder.mkdir()
    (folder / LOCK_FILE).touch()
    first, second = uuid4(), uuid4()
    assert ended_start(disk, folder, starts_of(disk, folder)) is None
    for each in (first, second):
        note_start(disk, folder, FolderIdentity("c", 1), starts_of(disk, folder), None, each)
    assert ended_start(disk, folder, starts_of(disk, folder)) == second
    shutil.copytree(folder, copy)
    assert ended_start(disk, copy, starts_of(disk, copy)) is None
    assert ended_start(disk, folder, starts_of(disk, folder)._replace(lock_place="another boot:1:2")) is None
