"""Stopping: what rests costs nothing, what a clean end promises is durable, a full disk is told once."""

import asyncio
import errno
import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import Clock
from tests.unit.broker.test_services import batch, opened, stored
from tests.waiting import until
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.data_folder.verification import verify_folder
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.local_segment import DELETED_SUFFIX
from tidelog.broker.storage.verification.findings import Finding
from tidelog.protocol.errors import ApiError
from tidelog.protocol.types import Buffer

PARTITIONS = 40
PRODUCER_ID = 0


class KeepingDisk(Disk):
    """Knows what is not durable yet, and counts what is written and synced."""

    def __init__(self) -> None:
        self.work: Counter[str] = Counter()
        self.unsynced: set[Path] = set()
        """Files whose bytes, and folders whose names, were changed since they were synced."""
        self._paths: dict[int, Path] = {}

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if not path.exists():
            self.unsynced.add(path.parent)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.work["writes"] += 1
        self.unsynced.add(self._paths[fd])
        return super().writev(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        if self.size(fd) != size:
            self.unsynced.add(self._paths[fd])
        super().truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        was_unsynced = old in self.unsynced
        self.unsynced.discard(old)
        # What is deleted may come back: the log's start is kept elsewhere.
        if new.suffix != DELETED_SUFFIX:
            self.unsynced |= {new.parent, new} if was_unsynced else {new.parent}
        self._paths = {fd: new if path == old else path for fd, path in self._paths.items()}

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.unsynced.discard(path)

    def fdatasync(self, fd: int) -> None:
        self.work["file syncs"] += 1
        super().fdatasync(fd)
        self.unsynced.discard(self._paths[fd])

    def fsync_directory(self, path: Path) -> None:
        self.work["folder syncs"] += 1
        super().fsync_directory(path)
        self.unsynced.discard(path)

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def unsynced_in(self, folder: Path) -> set[Path]:
        """But for the indexes of the last segment: a start reads what they do not know."""
        newest = max((path.stem for path in folder.glob("*.log")), default="")
        rebuilt = {folder / f"{newest}.index", folder / f"{newest}.timeindex"}
        return {path for path in self.unsynced if path == folder or path.parent == folder} - rebuilt


async def append(services: Services, partition: int, sequence: int) -> None:
    replica = services.replicas["t", partition]
    replica.append_as_leader(batch(producer_id=PRODUCER_ID, sequence=sequence), services.clock_ms())
    await replica.committed(replica.log.end_offset)


async def with_records(folder: Path, disk: Disk | None = None) -> Services:
    services = await opened(folder, disk=disk)
    await services.topics.create("t", NewTopic(num_partitions=PARTITIONS))
    assert await services.producer_ids.next() == PRODUCER_ID
    for partition in range(PARTITIONS):
        await append(services, partition, 0)
    return services


def damage(folder: Path) -> list[Finding]:
    findings: list[Finding] = []
    verify_folder(folder, findings.append)
    return findings


def snapshots(folder: Path) -> int:
    return len(list(folder.glob("*.snapshot")))


async def rest(services: Services) -> None:
    """As long as it takes until a log is known to rest."""
    for _ in range(3):
        await services.maintenance.checkpoint()


async def test_partitions_that_rest_cost_a_stop_nothing(tmp_path: Path) -> None:
    disk = KeepingDisk()
    services = await with_records(tmp_path, disk)
    await rest(services)
    for _ in range(2):
        disk.work.clear()
        await services.close()
        # The marker of a clean end, whatever the number of partitions, and at most both offset checkpoints.
        assert disk.work.total() <= 3 * 3
        assert damage(tmp_path) == []
        services = await opened(tmp_path, disk=disk)
        assert services.partitions.logs.was_clean
        assert {log.recovery.replayed_batches for log in services.partitions.logs.logs.values()} == {0}
    await append(services, 7, 1)
    await services.close()


async def test_a_partition_that_was_written_to_costs_a_stop_four_syncs(tmp_path: Path) -> None:
    disk = KeepingDisk()
    services = await with_records(tmp_path, disk)
    disk.work.clear()
    await services.close()
    assert disk.work["file syncs"] <= 3 * PARTITIONS + 3
    assert disk.work["folder syncs"] <= PARTITIONS + 3


async def test_the_snapshot_of_a_log_that_rests_is_written_once(tmp_path: Path) -> None:
    disk, clock = KeepingDisk(), Clock()
    services = await opened(tmp_path, clock, disk=disk)
    await services.topics.create("t", NewTopic(num_partitions=2))
    assert await services.producer_ids.next() == PRODUCER_ID
    await append(services, 0, 0)
    await rest(services)
    disk.work.clear()
    for _ in range(10):
        await services.maintenance.checkpoint()
    assert disk.work.total() == 0
    # Producers grow older: how old they are is noted now and then.
    clock.now_ms += 3_600_000
    await services.maintenance.expire_producers()
    for _ in range(10):
        await services.maintenance.checkpoint()
    assert disk.work["writes"] > 0
    assert snapshots(tmp_path / "t-1") == 0
    await services.close()


@pytest.mark.parametrize("change", ["forget", "expire", "set"])
async def test_what_changed_of_producers_without_a_batch_outlives_a_stop(tmp_path: Path, change: str) -> None:
    clock = Clock()
    services = await opened(tmp_path, clock)
    await services.topics.create("t")
    assert await services.producer_ids.next() == PRODUCER_ID
    await append(services, 0, 0)
    await rest(services)
    producers = services.replicas["t", 0].log.producers
    if change == "forget":
        producers.forget(PRODUCER_ID)
    elif change == "expire":
        clock.now_ms += producers.rules.expiration_ms
        await services.maintenance.expire_producers()
    else:
        producers.set_next_sequence(PRODUCER_ID, 0, 1000, clock.now_ms)
    expected = producers.entry(PRODUCER_ID)
    await services.close()
    services = await opened(tmp_path, clock)
    assert services.replicas["t", 0].log.producers.entry(PRODUCER_ID) == expected
    await services.close()


@pytest.mark.parametrize("seed", range(4))
async def test_after_a_clean_stop_everything_that_a_start_trusts_is_durable(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    disk = KeepingDisk()
    services = await opened(tmp_path, disk=disk)
    await services.topics.create("t", NewTopic(num_partitions=4, configs={"segment.bytes": "400"}))
    assert await services.producer_ids.next() == PRODUCER_ID
    sequences = [0] * 4
    for _ in range(8):
        for _ in range(chance.randrange(6)):
            partition = chance.randrange(3)  # The last one stays unused for a while.
            log = services.replicas["t", partition].log
            match chance.randrange(6):
                case 0 | 1:
                    await append(services, partition, sequences[partition])
                    sequences[partition] += 1
                case 2:
                    services.replicas["t", partition].append_as_leader(batch(), services.clock_ms())
                case 3:
                    log.roll(services.clock_ms())
                case 4:
                    log.delete_records_before(log.flushed_end_offset)
                case 5:
                    await services.maintenance.checkpoint()
        ends = {key: log.end_offset for key, log in services.partitions.logs.logs.items()}
        is_clean = chance.random() < 0.8
        used = [tmp_path / f"t-{partition}" for (_, partition), end in ends.items() if end]
        await services.close(clean=is_clean)
        if is_clean:
            assert [disk.unsynced_in(folder) for folder in used] == [set()] * len(used)
            assert damage(tmp_path) == []
        services = await opened(tmp_path, disk=disk)
        if is_clean:
            assert services.partitions.logs.was_clean
            assert {key: log.end_offset for key, log in services.partitions.logs.logs.items()} == ends
    # What is acknowledged first only now lies in a folder that many processes left alone.
    await append(services, 3, 0)
    assert disk.unsynced_in(tmp_path / "t-3") == set()
    await services.close()


class FullDisk(Disk):
    """Takes nothing more once it is full, but for what a test lets through."""

    is_full = False

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().writev(fd, buffers, position)


async def test_a_stop_on_a_full_disk_is_reported_once_and_loses_nothing(tmp_path: Path) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    disk = FullDisk()
    services = await with_records(tmp_path, disk)
    disk.is_full = True
    with capture_logs() as events:
        await services.close()
    (event,) = [event for event in events if event["log_level"] == "error"]
    assert event["event"] == "shutdown_not_clean"
    assert "nothing that was acknowledged is lost" in event["advice"]
    gc.collect()
    assert complaints == []
    services = await opened(tmp_path)
    assert not services.partitions.logs.was_clean
    assert {log.end_offset for log in services.partitions.logs.logs.values()} == {1}
    await services.close()


@pytest.mark.parametrize("job", ["checkpoint", "retention"])
async def test_a_job_that_fails_while_the_broker_stops_is_reported_and_leaves_no_task(
    tmp_path: Path, job: str
) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    class Held(Disk):
        waits = False
        is_held = False
        goes_on = threading.Event()

        def list_directory(self, path: Path) -> list[str]:
            if self.waits and path == tmp_path:
                self.is_held = True
                self.goes_on.wait()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().list_directory(path)

    disk = Held()
    interval = {
        "checkpoint": "log_flush_offset_checkpoint_interval_ms",
        "retention": "log_retention_check_interval_ms",
    }[job]
    services = await opened(tmp_path, disk=disk, **{interval: 1})
    disk.waits = True
    await until(lambda: disk.is_held)
    with capture_logs() as events:
        stopping = asyncio.create_task(services.close())
        for _ in range(10):
            await asyncio.sleep(0)
        disk.waits = False
        disk.goes_on.set()
        await stopping
    assert [event["job"] for event in events if event["event"] == "maintenance_failed"] == [job]
    gc.collect()
    assert complaints == []


async def test_a_checkpoint_under_way_keeps_no_stop_waiting_for_all_other_logs(
    tmp_path: Path,
) -> None:
    services = await with_records(tmp_path)
    begun: list[int] = []
    for log in services.partitions.logs.logs.values():
        real = log.begin_checkpoint

        def noted(begin=real, partition=log.partition):  # type: ignore[no-untyped-def]
            begun.append(partition)
            return begin()

        log.begin_checkpoint = noted  # type: ignore[method-assign]
    checkpointing = asyncio.create_task(services.maintenance.checkpoint())
    await until(lambda: begun)
    await services.close()
    await checkpointing
    assert len(begun) < PARTITIONS


async def test_a_store_that_cannot_be_closed_keeps_no_stop_from_its_end(tmp_path: Path) -> None:
    class Unwilling(SqliteStore):
        async def close(self) -> None:
            await super().close()
            raise StoreError("the disk is full")

    services = await opened(tmp_path, store=Unwilling(tmp_path / STORE_FILE, node_id=1))
    await services.topics.create("t")
    await stored(services, b"v")
    with capture_logs() as events:
        await services.close()
    (event,) = [event for event in events if event["log_level"] == "error"]
    assert (event["event"], event["error"]) == ("cluster_store_not_closed", "the disk is full")
    services = await opened(tmp_path)
    assert services.partitions.logs.was_clean
    with pytest.raises(ApiError, match="already exists"):
        await services.topics.create("t")
    await services.close()
