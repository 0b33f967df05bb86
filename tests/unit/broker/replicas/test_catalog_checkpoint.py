"""What a broker saw of the catalog is noted: it accepts no older one, and commits nothing before the note."""

import errno
import os
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.cluster.stores import broker
from tests.unit.broker.conftest import OpenServices
from tests.unit.broker.replicas.test_replica import NOW_MS, batch
from tests.waiting import until
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.cluster.cluster import Cluster
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import SeenCommit, StoreView
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.replicas.catalog_checkpoint import CatalogCheckpoint
from tidelog.broker.storage.checkpoints import CATALOG_COMMIT, read_commit, write_commit
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.manager import DataFolderError
from tidelog.protocol.types import Buffer


class SlowDisk(Disk):
    """Writes whole files while it `may_write`, or fails."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.may_write.set()
        self.failure: Exception | None = None
        self.writes = self.waiting = 0

    def replace_file(self, path: Path, buffers: Iterable[Buffer], **more: bool) -> None:
        self.waiting += 1
        self.may_write.wait()
        self.waiting -= 1
        if self.failure is not None:
            raise self.failure
        self.writes += 1
        super().replace_file(path, buffers, **more)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "catalog").mkdir()
    store = SqliteStore(tmp_path / "catalog" / STORE_FILE, node_id=1)
    made = Cluster(await store.load(), store)
    yield made
    await made.close()


class History:
    """What etcd would say of the commits of the image, each of which has its revision as its nonce."""

    view = StoreView()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def seen(self) -> SeenCommit:
        revision = self._cluster.catalog.revision
        return SeenCommit(revision, str(revision))

    async def holds(self, seen: SeenCommit) -> bool:
        return seen.revision <= self.seen.revision and seen.nonce in ("", str(seen.revision))


def noted(cluster: Cluster, folder: Path, disk: Disk) -> CatalogCheckpoint:
    return CatalogCheckpoint(cluster, disk, folder, History(cluster))


async def changed(cluster: Cluster) -> None:
    await cluster.change(lambda image: broker(image.revision))


async def test_a_catalog_older_than_the_newest_that_was_seen_is_refused(
    cluster: Cluster, tmp_path: Path
) -> None:
    disk, path = Disk(), tmp_path / CATALOG_COMMIT
    for _ in range(2):
        await changed(cluster)
    first = noted(cluster, tmp_path, disk)
    await first.begin()
    assert read_commit(disk, path) == (2, "2")
    await changed(cluster)
    await until(lambda: read_commit(disk, path) == (3, "3"))
    await first.close()
    await changed(cluster)
    again = noted(cluster, tmp_path, disk)
    await again.begin()
    await again.close()
    for seen in ((5, ""), (3, "restored")):
        write_commit(disk, path, seen)
        with pytest.raises(
            DataFolderError,
            match=f"is at revision 4, and lacks revision {seen[0]} as",
        ):
            await noted(cluster, tmp_path, disk).begin()
    of_processes = CatalogCheckpoint(cluster, disk, tmp_path, None)
    await of_processes.begin()
    await of_processes.close()
    path.write_text("0\n1\nx -\n")
    with pytest.raises(DataFolderError, match="if the catalog is the newest one, remove the file"):
        await noted(cluster, tmp_path, disk).begin()


async def test_changes_that_come_while_one_is_noted_are_one_write(cluster: Cluster, tmp_path: Path) -> None:
    disk = SlowDisk()
    checkpoint = noted(cluster, tmp_path, disk)
    await checkpoint.begin()
    writes = disk.writes
    told: list[int] = []
    assert checkpoint.when_noted(lambda: told.append(0))
    disk.may_write.clear()
    for number in range(1, 9):
        await changed(cluster)
        assert not checkpoint.when_noted(lambda number=number: told.append(number))  # type: ignore[misc]
    assert told == []
    disk.may_write.set()
    await until(lambda: told == [*range(1, 9)])
    assert disk.writes - writes == 2
    assert read_commit(disk, tmp_path / CATALOG_COMMIT) == (8, "8")
    await checkpoint.close()


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("that nobody expects")]
)
async def test_a_disk_that_takes_no_note_keeps_nobody_waiting(
    cluster: Cluster, tmp_path: Path, failure: Exception
) -> None:
    disk = SlowDisk()
    checkpoint = noted(cluster, tmp_path, disk)
    await checkpoint.begin()
    disk.failure = failure
    told: list[int] = []
    with capture_logs() as logs:
        disk.may_write.clear()
        await changed(cluster)
        assert not checkpoint.when_noted(lambda: told.append(0))
        disk.may_write.set()
        await until(lambda: told)
        await changed(cluster)
        await until(lambda: checkpoint.when_noted(lambda: None))
    assert [(each["event"], each["error"]) for each in logs] == [
        ("catalog_revision_not_noted", repr(failure))
    ]
    disk.failure = None
    await changed(cluster)
    await until(lambda: read_commit(disk, tmp_path / CATALOG_COMMIT) == (3, "3"))
    await checkpoint.close()


async def test_a_leader_commits_nothing_under_a_state_that_its_folder_does_not_know(
    cluster: Cluster, open_here: OpenServices, tmp_path: Path
) -> None:
    disk = SlowDisk()
    checkpoint = noted(cluster, tmp_path, disk)
    await checkpoint.begin()
    services = await open_here()
    services.partitions.when_noted = checkpoint.when_noted
    await services.topics.create("t")
    replica = services.replicas["t", 0]
    assigned = PartitionAssignment(1, 1, (1, 2), (1, 2))
    replica.lead(assigned)
    replica.append_as_leader(batch(b"a"), NOW_MS)
    await replica.flushed()
    disk.may_write.clear()
    await changed(cluster)
    replica.set_assigned(assigned._replace(isr=(1,), partition_epoch=1))
    assert (replica.log.flushed_end_offset, replica.high_watermark) == (1, 0)
    # The note of that state, which is on its way, does not count for a later one.
    await until(lambda: disk.waiting == 1)
    told: list[int] = []
    assert not checkpoint.when_noted(lambda: told.append(replica.high_watermark))
    await changed(cluster)
    replica.set_assigned(assigned._replace(isr=(1,), partition_epoch=2))
    disk.may_write.set()
    await until(lambda: told)
    assert told == [0]
    await until(lambda: replica.high_watermark == 1)
    # An election may commit what an earlier leader wrote.
    replica.append_as_leader(batch(b"b"), NOW_MS)
    await replica.flushed()
    assert replica.high_watermark == 2
    disk.may_write.clear()
    await changed(cluster)
    replica.lead(assigned._replace(isr=(1, 2), leader_epoch=2))
    replica.lead(assigned._replace(isr=(1,), leader_epoch=3))
    replica.append_as_leader(batch(b"c"), NOW_MS)
    await replica.flushed()
    assert (replica.log.flushed_end_offset, replica.high_watermark) == (3, 2)
    disk.may_write.set()
    await until(lambda: replica.high_watermark == 3)
    await checkpoint.close()
